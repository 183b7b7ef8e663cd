//! The known word that is meant by one with a typing mistake.

/// Most characters of a word for which a similar one is looked for: a longer one is seldom typed, and comparing takes
/// the product of both lengths.
const CHARS_MAX: usize = 64;

/// The candidate that is most like a word, if one is so like it that it may be meant: up to a third of its characters
/// are wrong, missing, added, or exchanged with their neighbour. Case does not count. Of equal ones it is the first.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().chars().collect();
    if word.is_empty() || word.len() > CHARS_MAX {
        return None;
    }
    let mut best: Option<(usize, &'a str)> = None;
    for candidate in candidates {
        let letters: Vec<char> = candidate.to_lowercase().chars().collect();
        let mistakes_max = (word.len().max(letters.len()) / 3).max(1);
        if letters.len() > CHARS_MAX || letters.len().abs_diff(word.len()) > mistakes_max {
            continue;
        }
        let mistakes = mistakes_between(&word, &letters);
        if mistakes <= mistakes_max && best.is_none_or(|(least, _)| mistakes < least) {
            best = Some((mistakes, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The optimal string alignment distance: how many characters must be put in, taken out, replaced, or exchanged with
/// their neighbour to make one word of the other.
fn mistakes_between(one: &[char], other: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, candidate) in other.iter().enumerate() {
            let replaced = row[j] + usize::from(letter != candidate);
            let mut least = replaced.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *letter == other[j - 1] && one[i - 1] == *candidate {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_mistake_leads_to_the_word_that_is_meant() {
        let known = ["name", "command", "Frames", "maya", "bob"];
        for (typed, meant) in [
            ("commnd", "command"),
            ("Frame", "Frames"),
            ("frames", "Frames"),
            ("mayaa", "maya"),
            ("bbo", "bob"),
            ("comandd", "command"),
        ] {
            assert_eq!(nearest(typed, known), Some(meant), "{typed}");
        }
        for other in ["", "queue", "nuke", "x"] {
            assert_eq!(nearest(other, known), None, "{other}");
        }
        assert_eq!(nearest(&"x".repeat(1000), known), None);
    }

    #[test]
    fn mistakes_are_counted_as_they_are_made() {
        let count = |one: &str, other: &str| {
            let letters = |word: &str| word.chars().collect::<Vec<_>>();
            mistakes_between(&letters(one), &letters(other))
        };
        assert_eq!((count("", "abc"), count("abc", ""), count("abc", "abc")), (3, 3, 0));
        assert_eq!((count("abc", "acb"), count("abc", "axc"), count("größe", "grösse")), (1, 1, 2));
    }
}
