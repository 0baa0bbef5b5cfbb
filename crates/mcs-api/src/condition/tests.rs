//! Tests of names and lists of conditions.

use super::*;

fn condition(type_: &str, status: &str, second: i64) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: "Pending".to_owned(),
        message: String::new(),
        observed_generation: Some(1),
        last_transition_time: Time(Timestamp::from_second(second).unwrap()),
    }
}

#[test]
fn names_parse_back() {
    for &reason in ConflictReason::ALL {
        assert_eq!(reason.to_string().parse(), Ok(reason));
    }
    for &reason in ImportReadyReason::ALL {
        assert_eq!(reason.as_str().parse(), Ok(reason));
    }
    assert_eq!(
        "Odd".parse::<ValidReason>().unwrap_err().to_string(),
        r#""Odd" is not a known reason of the condition Valid"#
    );
}

#[test]
fn conflicts_join_in_order_and_split_again() {
    let conflicts = [
        ConflictReason::IpFamily,
        ConflictReason::Port,
        ConflictReason::IpFamily,
    ];
    assert_eq!(
        ConflictReason::join(conflicts),
        "PortConflict,IPFamilyConflict"
    );
    assert_eq!(ConflictReason::join([]), "NoConflicts");

    assert_eq!(ConflictReason::split("NoConflicts"), Ok(vec![]));
    assert_eq!(
        ConflictReason::split("PortConflict, IPFamilyConflict"),
        Ok(vec![ConflictReason::Port, ConflictReason::IpFamily])
    );
    assert!(ConflictReason::split("PortConflict,Odd").is_err());

    let all = ConflictReason::join(ConflictReason::ALL.iter().copied());
    assert!(all.len() <= 1_024, "the API server takes no longer reason");
}

#[test]
fn the_transition_time_moves_with_the_status_only() {
    let mut conditions = vec![condition("Valid", "True", 1)];

    assert!(set(&mut conditions, condition("Ready", "False", 2)));
    assert!(!set(&mut conditions, condition("Ready", "False", 3)));
    assert_eq!(conditions[1], condition("Ready", "False", 2));

    let newer = Condition {
        observed_generation: Some(2),
        ..condition("Ready", "False", 4)
    };
    assert!(set(&mut conditions, newer));
    assert_eq!(
        conditions[1].last_transition_time,
        condition("", "", 2).last_transition_time
    );

    assert!(set(&mut conditions, condition("Ready", "True", 5)));
    assert_eq!(
        conditions,
        [condition("Valid", "True", 1), condition("Ready", "True", 5)]
    );
    assert_eq!(find(&conditions, "Ready"), Some(&conditions[1]));
    assert_eq!(find(&conditions, "Conflict"), None);
}
