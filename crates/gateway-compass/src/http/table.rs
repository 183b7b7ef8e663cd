//! Lists for people and scripts: rows of fields as text, JSON, or HTML.

use crate::format::{Fields, public_fields, text_of};
use axum::Json;
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};
use serde_json::Value;
use std::collections::BTreeMap;

/// Jobs, hosts or accounts that are read for one list.
pub(super) const LOOKED_MAX: usize = 10_000;

/// The parameters of a query.
pub(super) type Words = BTreeMap<String, String>;

/// A parameter of a query; `None` if it is absent or empty.
pub(super) fn given(query: &Words, key: &str) -> Option<String> {
    query.get(key).filter(|text| !text.is_empty()).cloned()
}

/// A field as a cell's text; empty if it is absent.
pub(super) fn cell(fields: &Fields, key: &str) -> String {
    match fields.get(key) {
        None | Some(Value::Null) => String::new(),
        Some(value) => text_of(fields, key).unwrap_or_else(|| value.to_string()),
    }
}

/// Rows as a list, sorted and reduced as the query says: text, JSON, or HTML for browsers.
pub(super) fn table(title: &str, rows: Vec<Fields>, columns: &[&str], query: &Words) -> Response {
    let mut rows: Vec<Fields> = rows.into_iter().map(|row| public_fields(row, None)).collect();
    if let Some(key) = given(query, "sort") {
        rows.sort_by_cached_key(|row| sort_key(row, &key));
    }
    if given(query, "order").as_deref() == Some("desc") {
        rows.reverse();
    }
    let columns: Vec<String> = match given(query, "fields") {
        Some(fields) => fields.split(',').map(str::to_owned).collect(),
        None => columns.iter().map(|column| (*column).to_owned()).collect(),
    };
    if given(query, "output").as_deref() == Some("json") {
        let rows = rows.into_iter().map(|mut row| {
            row.retain(|key, _| columns.contains(key));
            Value::Object(row)
        });
        return Json(rows.collect::<Vec<Value>>()).into_response();
    }
    let lines: Vec<Vec<String>> =
        rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()).collect();
    if given(query, "output").as_deref() == Some("text") {
        let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
        return (kind, padded(&columns, &lines)).into_response();
    }
    Html(html(title, &columns, &lines)).into_response()
}

/// Numbers sort by size, and before words.
fn sort_key(row: &Fields, key: &str) -> (Option<u64>, String) {
    let text = cell(row, key);
    match text.parse() {
        Ok(number) => (Some(number), text),
        Err(_) => (Some(u64::MAX), text),
    }
}

/// A table as text with padded columns.
fn padded(columns: &[String], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = columns.iter().map(|column| column.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    };
    std::iter::once(line(columns)).chain(rows.iter().map(|row| line(row))).collect()
}

/// A table as a page for browsers.
fn html(title: &str, columns: &[String], rows: &[Vec<String>]) -> String {
    let line = |tag: &str, cells: &[String]| {
        let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = rows.iter().map(|row| line("td", row)).collect();
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<table>\n{}{rows}</table>\n",
        line("th", columns)
    )
}

/// A text without the characters that HTML reads as its own.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_padded_text_or_escaped_html() {
        let (columns, rows) =
            (vec!["a".to_owned(), "b".to_owned()], vec![vec!["long".to_owned(), "<x>".to_owned()]]);
        assert_eq!(padded(&columns, &rows), "a     b\nlong  <x>\n");
        assert!(html("t", &columns, &rows).contains("<td>&lt;x&gt;</td>"));
    }
}
