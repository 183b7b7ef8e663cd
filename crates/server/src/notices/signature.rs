//! Signatures of webhooks, by which a receiver knows that a notice is the farm's and was not changed: HMAC with SHA-256 over
//! the time of sending, a dot, and the body. The time keeps an old notice from being sent to the receiver again.

use ring::hmac;

/// The headers that a signature is sent in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Signed {
    /// `windlass-timestamp`: seconds since the Unix epoch.
    pub timestamp: String,
    /// `windlass-signature`: the version of this scheme, and 64 hexadecimal digits.
    pub signature: String,
}

/// Signs a body that is sent now.
pub(crate) fn sign(key: &hmac::Key, now_s: u64, body: &str) -> Signed {
    let timestamp = now_s.to_string();
    let mut context = hmac::Context::with_key(key);
    for part in [timestamp.as_bytes(), b".", body.as_bytes()] {
        context.update(part);
    }
    let digits: String = context.sign().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Signed { timestamp, signature: format!("v1={digits}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value is that of `printf '1700000000.{"event":"x"}' | openssl dgst -sha256 -hmac 'a secret of the farm'`.
    #[test]
    fn a_signature_is_that_of_other_programs() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"a secret of the farm");
        let signed = sign(&key, 1_700_000_000, r#"{"event":"x"}"#);
        assert_eq!(signed.timestamp, "1700000000");
        assert_eq!(signed.signature, "v1=63b64dc57940b649cb6bbdba7505cc9f02c0d30a7adc74abd93bf7e210620452");
        assert_ne!(sign(&key, 1_700_000_001, r#"{"event":"x"}"#).signature, signed.signature);
        assert_ne!(sign(&key, 1_700_000_000, r#"{"event":"y"}"#).signature, signed.signature);
    }
}
