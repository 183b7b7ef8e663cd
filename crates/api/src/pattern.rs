//! Patterns of users' names, such as `film-*`: each `*` stands for any number of characters, also none. All other
//! characters stand for themselves, and `*` cannot be escaped.

use windlass_core::bounds::NAME_BYTES_MAX;

/// Patterns that a token or a setting may have.
pub const NAME_PATTERNS_MAX: usize = 100;

/// True of a text that can be a pattern: from 1 to 255 bytes, without blanks and control characters.
pub fn is_name_pattern(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// True where the whole name is as the pattern says. Capital and small letters differ.
pub fn matches_name(pattern: &str, name: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(begin) else { return false };
    let mut parts = rest.split('*');
    let end = parts.next_back().unwrap_or_default();
    // The earliest place of each part leaves the most for those that follow.
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pattern_is_of_whole_names() {
        let matched: [(&str, &[&str], &[&str]); 6] = [
            ("ann", &["ann"], &["", "an", "anna", "Ann", "xann"]),
            ("film-*", &["film-", "film-ann", "film-*"], &["film", "xfilm-ann", "Film-ann"]),
            ("*", &["", "ann", "root"], &[]),
            ("*-td", &["-td", "ann-td", "a-td-td"], &["ann-tdx", "td"]),
            ("a*b*c", &["abc", "axbxc", "abbcc"], &["ab", "acb", "abcd"]),
            ("a*a", &["aa", "aba"], &["a"]),
        ];
        for (pattern, yes, no) in matched {
            assert!(yes.iter().all(|name| matches_name(pattern, name)), "{pattern}");
            assert!(!no.iter().any(|name| matches_name(pattern, name)), "{pattern}");
        }
        assert!(is_name_pattern("film-*") && is_name_pattern("ann"));
        for bad in ["", "a b", "a\nb", &"a".repeat(NAME_BYTES_MAX + 1)] {
            assert!(!is_name_pattern(bad), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_name_matches_what_is_made_of_it_by_leaving_out_parts(
            parts in proptest::collection::vec("[ab]{0,3}", 1..5), fill in "[ab]{0,3}"
        ) {
            prop_assert!(matches_name(&parts.join("*"), &parts.join(&fill)));
            let with_other = format!("{}c", parts.join(&fill));
            let longer = parts.join("*") + "b";
            prop_assert!(!matches_name(&longer, &with_other));
        }
    }
}
