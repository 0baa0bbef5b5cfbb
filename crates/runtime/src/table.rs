//! Plain tables, as kubectl prints them: columns padded with spaces, no frame.

use std::fmt::Write as _;

/// Lines of cells under a head.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self {
            rows: vec![head.map(str::to_owned).to_vec()],
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// Whether it has nothing but its head.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The table as text, each line after `indent`.
    pub(crate) fn show(&self, indent: &str) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = indent.to_owned();
            for (cell, width) in row.iter().zip(&widths) {
                // Writing to a String cannot fail.
                let _infallible = write!(line, "{cell:<width$}   ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["NAME", "AGE"]);
        table.row(["a-long-name".to_owned(), "1".to_owned()]);
        table.row(["ä".to_owned(), String::new()]);
        assert_eq!(
            table.show("  "),
            "  NAME          AGE\n  a-long-name   1\n  ä\n"
        );
    }
}
