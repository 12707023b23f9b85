//! Tables for people: aligned columns that fit the terminal. What does not fit is left out column by column,
//! least needed first; in a pipe everything stays.

use std::borrow::Cow;

use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::escaping::visible;
use super::style::{BOLD, paint};

const GAP: &str = "  ";

/// A column and how readily it is given up.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub title: &'static str,
    /// The higher, the sooner it is left out where there is no room; 0 stays.
    pub spare: u8,
    /// How wide it is at least in a table that goes on: rows that come later must stand below these.
    pub steady: usize,
    /// How narrow it may become by cutting its texts, before any column is left out; 0 if it is never cut.
    pub least: usize,
}

impl Column {
    pub const fn kept(title: &'static str) -> Self {
        Self { title, spare: 0, steady: 0, least: 0 }
    }

    /// A column that goes when room is scarce.
    pub const fn spared(title: &'static str, spare: u8) -> Self {
        Self { title, spare, steady: 0, least: 0 }
    }

    /// A column that stays and whose texts are cut, down to `least`, where there is no room.
    pub const fn cut(title: &'static str, least: usize) -> Self {
        Self { title, spare: 0, steady: 0, least }
    }

    /// The same column, at least so wide in a table that goes on.
    pub const fn steady(self, steady: usize) -> Self {
        Self { steady, ..self }
    }
}

#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<(String, Style)>>,
    goes_on: GoesOn,
}

/// Whether rows are still to come after these are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoesOn {
    No,
    Yes,
}

impl Table {
    pub fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new(), goes_on: GoesOn::No }
    }

    /// The same table as the beginning of a longer one.
    #[must_use]
    pub fn steady(mut self) -> Self {
        self.goes_on = GoesOn::Yes;
        self
    }

    /// Adds a row; its texts are made safe to show.
    pub fn row(&mut self, cells: Vec<(String, Style)>) {
        self.rows.push(cells.into_iter().map(|(text, style)| (visible(&text).into_owned(), style)).collect());
    }

    /// The table as text; `width` is what it has to fit into, if anything.
    pub fn render(&self, width: Option<usize>) -> String {
        let mut widths = self.widths();
        let kept = self.fitting(&widths, width);
        if let Some(width) = width {
            self.narrow(&mut widths, &kept, width);
        }
        let mut text = String::new();
        let titles = self.columns.iter().map(|column| (column.title.to_owned(), BOLD)).collect();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let cells: Vec<_> =
                kept.iter().filter_map(|at| Some((row.get(*at)?, *widths.get(*at)?))).collect();
            let last = cells.len().saturating_sub(1);
            for (index, ((cell, style), width)) in cells.into_iter().enumerate() {
                let cell = cut(cell, width);
                text.push_str(&if cell.is_empty() { String::new() } else { paint(*style, &cell) });
                if index < last {
                    text.push_str(&" ".repeat(width.saturating_sub(cell.width())));
                    text.push_str(GAP);
                }
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let widest = |at: usize, column: &Column| {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|(cell, _)| cell.width());
            let least = match self.goes_on {
                GoesOn::No => 0,
                GoesOn::Yes => column.steady,
            };
            cells.max().unwrap_or(0).max(column.title.width()).max(least)
        };
        self.columns.iter().enumerate().map(|(at, column)| widest(at, column)).collect()
    }

    /// Which columns there is room for. An empty column is no loss, whatever the room.
    fn fitting(&self, widths: &[usize], width: Option<usize>) -> Vec<usize> {
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        let Some(width) = width else { return kept };
        let filled =
            |at: &usize| self.rows.iter().any(|row| row.get(*at).is_some_and(|(cell, _)| !cell.is_empty()));
        let spare = |at: usize| self.columns.get(at).map_or(0, |column| column.spare);
        kept.retain(|at| spare(*at) == 0 || self.goes_on == GoesOn::Yes || filled(at));
        let narrowest: Vec<usize> = widths
            .iter()
            .zip(&self.columns)
            .map(|(width, column)| if column.least > 0 { column.least.min(*width) } else { *width })
            .collect();
        while needed(&narrowest, &kept) > width {
            let Some(goes) = kept.iter().copied().filter(|at| spare(*at) > 0).max_by_key(|at| spare(*at))
            else {
                break;
            };
            kept.retain(|at| *at != goes);
        }
        kept
    }

    /// Narrows the columns that may be cut, the widest first, until the table fits.
    fn narrow(&self, widths: &mut [usize], kept: &[usize], width: usize) {
        while needed(widths, kept) > width {
            let least = |at: usize| self.columns.get(at).map_or(0, |column| column.least);
            let wide = |at: &usize| least(*at) > 0 && widths.get(*at).is_some_and(|wide| *wide > least(*at));
            let widest = kept.iter().copied().filter(wide).max_by_key(|at| widths.get(*at).copied());
            let Some(one) = widest.and_then(|at| widths.get_mut(at)) else { return };
            *one -= 1;
        }
    }
}

/// How wide a table of these columns is.
fn needed(widths: &[usize], kept: &[usize]) -> usize {
    let gaps = GAP.len() * kept.len().saturating_sub(1);
    gaps + kept.iter().filter_map(|at| widths.get(*at)).sum::<usize>()
}

/// The beginning of a text that fits, and a sign where something is left out.
pub fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if text.width() <= width {
        return Cow::Borrowed(text);
    }
    let mut taken = 0;
    let fits = |letter: &char| {
        taken += letter.width().unwrap_or(0);
        taken < width
    };
    let head: String = text.chars().take_while(fits).collect();
    Cow::Owned(format!("{}…", head.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[
            Column::kept("TOOL"),
            Column::spared("CODE", 2),
            Column::spared("PLAN", 1),
            Column::kept("ID"),
        ]);
        let plain = |cells: [&str; 4]| cells.iter().map(|cell| ((*cell).to_owned(), Style::new())).collect();
        table.row(plain(["github:delete_repo", "E_MODE_ASK", "pln_1", "01A"]));
        table.row(plain(["日本:x", "", "", "01B\x1b"]));
        table
    }

    fn bare(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn columns_align_by_what_is_seen() {
        let text = bare(&table().render(None));
        assert_eq!(
            text,
            "TOOL                CODE        PLAN   ID\n\
             github:delete_repo  E_MODE_ASK  pln_1  01A\n\
             日本:x                                 01B\\u{1b}\n"
        );
    }

    #[test]
    fn a_column_is_cut_before_another_is_left_out() {
        let mut table = Table::new(&[Column::spared("ID", 1), Column::cut("WHO", 6), Column::cut("WHY", 6)]);
        let row = ["pln_…VH33T", "Claude Code in ~/projects/shop", "the 日本 order was a duplicate"];
        table.row(row.iter().map(|cell| ((*cell).to_owned(), Style::new())).collect());
        let line = |width| bare(&table.render(Some(width))).lines().nth(1).unwrap().to_owned();
        for width in 12..90 {
            assert!(line(width).width() <= width.max(14), "{width}: {}", line(width));
            assert!(line(width).contains("Claud") && line(width).contains("the"), "{width}: {}", line(width));
        }
        assert!(line(26).starts_with("pln_…VH33T  Claud…  the"), "{}", line(26));
        assert!(line(25).starts_with("Claude Co"), "{}", line(25));
    }

    #[test]
    fn the_least_needed_column_goes_first() {
        let titles =
            |width| bare(&table().render(Some(width))).lines().next().unwrap().split_whitespace().count();
        assert_eq!((titles(80), titles(40), titles(30), titles(5)), (4, 3, 2, 2));
        assert!(!bare(&table().render(Some(40))).contains("CODE"));
    }
}
