//! Mail: a command of the machine gets each on its standard input.

use super::undelivered::Undelivered;
use crate::notices::{NoticeBody, Sendmail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// How long the command may take for one mail.
const COMMAND_MAX: Duration = Duration::from_secs(60);
/// Characters of a subject.
const SUBJECT_CHARS_MAX: usize = 200;
/// Bytes of one encoded word of a header, before they are encoded (RFC 2047).
const WORD_BYTES_MAX: usize = 39;

/// Sends a mail. The command is killed when it takes too long.
pub(super) async fn send(
    sendmail: &Sendmail,
    to: &str,
    id: &str,
    body: &NoticeBody,
) -> Result<(), Undelivered> {
    let mail = text(sendmail.from.as_deref(), to, id, body);
    let mut command = Command::new(&sendmail.program);
    command.args(&sendmail.arguments).kill_on_drop(true).stdin(Stdio::piped());
    let mut running = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|why| Undelivered::NoCommand { program: sendmail.program.clone(), why })?;
    let pipe = running.stdin.take();
    let work = async {
        if let Some(mut pipe) = pipe {
            // A command that does not read all says by its exit code whether that is a failure.
            _ = pipe.write_all(mail.as_bytes()).await;
        }
        running.wait().await
    };
    match tokio::time::timeout(COMMAND_MAX, work).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(Undelivered::Command { program: sendmail.program.clone(), status }),
        Ok(Err(why)) => Err(Undelivered::NoCommand { program: sendmail.program.clone(), why }),
        Err(_) => Err(Undelivered::CommandHangs { program: sendmail.program.clone() }),
    }
}

/// The mail with its headers. Names come from users: no control character of theirs gets into it, so that none ends a
/// header or the mail.
fn text(from: Option<&str>, to: &str, id: &str, body: &NoticeBody) -> String {
    let mut headers = Vec::new();
    headers.extend(from.map(|from| format!("From: {from}")));
    headers.push(format!("To: {to}"));
    headers.push(format!("Subject: {}", subject(&body.subject())));
    headers.push(format!("Windlass-Notice: {id}"));
    // Programs that answer mail leave such a one alone (RFC 3834).
    headers.push("Auto-Submitted: auto-generated".to_owned());
    headers.push("MIME-Version: 1.0".to_owned());
    headers.push("Content-Type: text/plain; charset=utf-8".to_owned());
    headers.push("Content-Transfer-Encoding: base64".to_owned());
    let lines: Vec<String> = body.lines().iter().map(|line| plain(line)).collect();
    let encoded = STANDARD.encode(lines.join("\r\n") + "\r\n");
    let encoded = encoded.as_bytes().chunks(76).map(String::from_utf8_lossy);
    format!("{}\n\n{}\n", headers.join("\n"), encoded.collect::<Vec<_>>().join("\n"))
}

/// A subject of plain letters as it is, another as encoded words.
fn subject(text: &str) -> String {
    let text: String = plain(text).chars().take(SUBJECT_CHARS_MAX).collect();
    if text.is_ascii() && !text.contains("=?") {
        return text;
    }
    let mut words = vec![String::new()];
    for letter in text.chars() {
        let word = words.last().map_or(0, String::len);
        if word + letter.len_utf8() > WORD_BYTES_MAX {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(letter);
        }
    }
    let words = words.iter().map(|word| format!("=?UTF-8?B?{}?=", STANDARD.encode(word)));
    words.collect::<Vec<_>>().join("\n ")
}

/// The text in one line.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(worker: &str) -> NoticeBody {
        let body = serde_json::json!({"event": "worker_lost", "worker": worker, "lost_ms": 1});
        NoticeBody::from_text(&body.to_string()).unwrap()
    }

    #[test]
    fn no_name_ends_a_header_or_the_mail() {
        let evil = lost("a\r\nBcc: eve@example.org\n.\n");
        let mail = text(Some("farm@example.org"), "ann@example.org", "7-1", &evil);
        let (headers, body) = mail.split_once("\n\n").unwrap();
        let names: Vec<&str> = headers.lines().map(|line| line.split(':').next().unwrap()).collect();
        let expected = "From To Subject Windlass-Notice Auto-Submitted MIME-Version Content-Type Content-Transfer-Encoding";
        assert_eq!(names, expected.split(' ').collect::<Vec<_>>());
        assert!(
            headers.contains("Subject: windlass: worker a  Bcc: eve@example.org .  is lost\n"),
            "{headers}"
        );
        let body = STANDARD.decode(body.replace('\n', "")).unwrap();
        assert!(String::from_utf8(body).unwrap().starts_with("Worker a  Bcc: eve@example.org . "));
    }

    #[test]
    fn other_letters_are_encoded_in_short_words() {
        let folded = subject(&"größe ".repeat(20));
        assert!(folded.is_ascii() && folded.lines().all(|line| line.len() <= 76), "{folded}");
        let words = folded.lines().map(|word| {
            let word = word.trim().strip_prefix("=?UTF-8?B?").unwrap().strip_suffix("?=").unwrap();
            String::from_utf8(STANDARD.decode(word).unwrap()).unwrap()
        });
        assert_eq!(words.collect::<String>(), "größe ".repeat(20));
        assert_eq!(subject("=?x?="), format!("=?UTF-8?B?{}?=", STANDARD.encode("=?x?=")));
    }
}
