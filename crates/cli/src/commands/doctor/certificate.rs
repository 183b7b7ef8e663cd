//! Reads the validity of a certificate. TLS reports that it has expired only when it is too late.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// ASN.1 tags: an optional version at the beginning, and the two encodings of a time.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Fields between the version and the validity: serial number, algorithm, issuer.
const FIELDS_BEFORE: usize = 3;

/// When the validity of a certificate begins and ends; `None` if that cannot be read.
pub fn validity(der: &[u8]) -> Option<(Timestamp, Timestamp)> {
    let (_, certificate, _) = element(der)?;
    let (_, mut fields, _) = element(certificate)?;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    for _ in 0..FIELDS_BEFORE {
        fields = element(fields)?.2;
    }
    let (_, validity, _) = element(fields)?;
    let (kind, from, rest) = element(validity)?;
    let (until_kind, until, _) = element(rest)?;
    Some((moment(kind, from)?, moment(until_kind, until)?))
}

/// The first element of some DER: its tag, its content, and the bytes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn moment(kind: u8, text: &[u8]) -> Option<Timestamp> {
    let format = match kind {
        UTC_TIME => "%y%m%d%H%M%SZ",
        GENERALIZED_TIME => "%Y%m%d%H%M%SZ",
        _ => return None,
    };
    let moment = DateTime::strptime(format, str::from_utf8(text).ok()?).ok()?;
    Some(moment.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn made(from: i32, until: i32) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["farm.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 2);
        params.not_after = date_time_ymd(until, 3, 4);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn both_ways_of_writing_a_year_are_read() {
        let day = |text: &str| text.parse::<Timestamp>().unwrap();
        let expected = (day("2024-01-02T00:00:00Z"), day("2049-03-04T00:00:00Z"));
        assert_eq!(validity(&made(2024, 2049)), Some(expected));
        assert_eq!(validity(&made(2024, 2051)).unwrap().1, day("2051-03-04T00:00:00Z"));
    }

    #[test]
    fn what_is_no_certificate_has_no_validity() {
        let der = made(2024, 2049);
        // The signature comes last and is not needed.
        assert!((0..100).all(|cut| validity(&der[..cut]).is_none()));
        assert!(validity(b"\x30\x84\xff\xff\xff\xff").is_none() && validity(&[]).is_none());
    }
}
