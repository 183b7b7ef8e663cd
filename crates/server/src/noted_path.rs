//! The path of a request as logs have it. Machines fetch by URLs that show a secret, such as a job's token, and what is
//! written down is read by more people than the secret is for.

use std::fmt;

/// Bytes of a path that are noted.
const BYTES_MAX: usize = 512;
/// Hexadecimal digits from which on a segment of a path counts as a secret. Ids of tokens and sessions have twelve.
const SECRET_DIGITS_MIN: usize = 32;
/// What begins a token of this server, and how many digits its id has.
const TOKEN_START: &str = "wl_";
const TOKEN_ID_DIGITS: usize = 12;
/// The text that replaces a secret.
const STRUCK_OUT: &str = "***";

/// A path without its secrets, cut to a bound. Logs take no other.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct NotedPath(String);

impl NotedPath {
    /// Strikes out each segment that is, or holds, a secret.
    pub fn of(path: &str) -> NotedPath {
        let segments = path.split('/').map(|segment| if is_secret(segment) { STRUCK_OUT } else { segment });
        let mut noted = segments.collect::<Vec<&str>>().join("/");
        // Afterwards, so that no secret is noted because its end was cut off.
        noted.truncate(noted.floor_char_boundary(BYTES_MAX));
        NotedPath(noted)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// In quotes, with control characters escaped: a path must not begin a line of a log.
impl fmt::Debug for NotedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

fn is_secret(segment: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_hexdigit).count();
    let is_token = |(at, _): (usize, &str)| digits(&segment[at + TOKEN_START.len()..]) >= TOKEN_ID_DIGITS;
    (segment.len() >= SECRET_DIGITS_MIN && digits(segment) == segment.len())
        || segment.match_indices(TOKEN_START).any(is_token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn secrets_are_struck_out_and_what_people_look_for_stays() {
        let (job_token, token) =
            ("0123456789abcdef".repeat(2), format!("wl_{}_{}", "a".repeat(12), "0".repeat(64)));
        let cases = [
            ("/api/v1/jobs/7/cancel".to_owned(), "/api/v1/jobs/7/cancel"),
            ("/api/v1/tokens/0ab3f6a7c4c7".to_owned(), "/api/v1/tokens/0ab3f6a7c4c7"),
            ("/srv/file-store/owl_2/x.cgz".to_owned(), "/srv/file-store/owl_2/x.cgz"),
            (
                format!("/srv/scheduler/pending-jobs/7/{job_token}/job.cgz"),
                "/srv/scheduler/pending-jobs/7/***/job.cgz",
            ),
            (format!("/api/v1/{token}"), "/api/v1/***"),
            (format!("/boot.ipxe/mac/box1:{token}@farm"), "/boot.ipxe/mac/***"),
        ];
        for (path, noted) in cases {
            assert_eq!(NotedPath::of(&path).as_str(), noted);
        }
    }

    proptest! {
        #[test]
        fn no_secret_is_noted_wherever_it_stands(before in "[a-z/ä]{0,600}", after in "[a-z/]{0,600}", secret in "[0-9]{32,64}") {
            let noted = NotedPath::of(&format!("{before}/{secret}/{after}"));
            prop_assert!(!noted.as_str().contains(&secret[..8]) && noted.as_str().len() <= BYTES_MAX);
        }
    }
}
