//! What parsers say, in the words of people who write manifests.

/// A YAML error. What the library says to those who call it is left out.
pub(super) fn yaml(text: &str) -> String {
    if text.starts_with("budget breached") || text.contains("alias replay") {
        return "aliases repeat more than any manifest needs".to_owned();
    }
    if text.contains("recursive reference") {
        return "an alias stands for something that it is itself a part of".to_owned();
    }
    if let Some(kind) = text.strip_prefix("invalid ") {
        return format!("this is no {kind}");
    }
    match text.split_once(", set ") {
        Some((problem, _)) => problem.to_owned(),
        None => text.to_owned(),
    }
}

/// An error about a field's type, as serde says it: `invalid type: string "x", expected i32`.
pub(super) fn field(text: &str) -> String {
    let found = text
        .strip_prefix("invalid type: ")
        .or_else(|| text.strip_prefix("invalid value: "));
    let Some((is, wanted)) = found.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return text.to_owned();
    };
    format!("is {}, must be {}", found_words(is), wanted_words(wanted))
}

fn found_words(text: &str) -> String {
    let quoted = |word: &str| {
        let rest = text.strip_prefix(word)?;
        Some(rest.trim_matches('`').to_owned())
    };
    match text {
        "map" => "an object".to_owned(),
        "sequence" => "a list".to_owned(),
        "null" => "empty".to_owned(),
        _ => quoted("integer ")
            .or_else(|| quoted("boolean "))
            .or_else(|| quoted("floating point "))
            .or_else(|| {
                text.strip_prefix("string ")
                    .map(|text| format!("the text {text}"))
            })
            .unwrap_or_else(|| text.to_owned()),
    }
}

fn wanted_words(text: &str) -> String {
    match text {
        "a string" => "text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" => "a whole number",
        _ if text.starts_with("struct ") => "an object",
        _ => text,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_told_in_words_of_manifests() {
        for (text, words) in [
            (
                "invalid type: string \"80\", expected i32",
                "is the text \"80\", must be a whole number",
            ),
            (
                "invalid type: integer `1`, expected a string",
                "is 1, must be text",
            ),
            (
                "invalid type: map, expected a sequence",
                "is an object, must be a list",
            ),
            ("missing field `name`", "missing field `name`"),
        ] {
            assert_eq!(field(text), words);
        }
    }

    #[test]
    fn a_library_is_not_heard() {
        let text = "duplicate mapping key: a, set DuplicateKeyPolicy in Options if acceptable";
        assert_eq!(yaml(text), "duplicate mapping key: a");
        let text = "budget breached: Events { events: 2063 }";
        assert!(!yaml(text).contains("budget"));
    }
}
