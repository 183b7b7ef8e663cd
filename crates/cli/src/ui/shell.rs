//! Commands as one would type them.

/// The words as a line that a shell reads as these words.
pub fn quoted(words: &[String]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-{}".contains(c);
    // Of braces a shell reads only lists and ranges.
    let has_list = word.contains('{') && (word.contains(',') || word.contains(".."));
    if !word.is_empty() && !has_list && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(words: &[&str]) -> String {
        quoted(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn only_what_needs_it_is_quoted() {
        assert_eq!(line(&["cc", "-O2", "-c", "{}", "-o", "{.}.o"]), "cc -O2 -c {} -o {.}.o");
        assert_eq!(line(&["sh", "-c", "cc -c {} && echo $?"]), "sh -c 'cc -c {} && echo $?'");
        assert_eq!(line(&["echo", "", "it's", "{a,b}", "~"]), r"echo '' 'it'\''s' '{a,b}' '~'");
    }

    proptest! {
        // Each case starts a shell.
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_shell_reads_the_words_back(words in prop::collection::vec("[^\0]{0,12}", 1..5)) {
            let script = format!("printf '%s\\0' {}", quoted(&words));
            let Ok(output) = std::process::Command::new("/bin/sh").args(["-c", &script]).output() else {
                println!("SKIP a_shell_reads_the_words_back: needs /bin/sh");
                return Ok(());
            };
            let read: String = words.iter().map(|word| format!("{word}\0")).collect();
            prop_assert_eq!(String::from_utf8_lossy(&output.stdout), read);
        }
    }
}
