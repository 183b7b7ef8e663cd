//! What binds a login to its TLS connection (RFC 5929, `tls-server-end-point`): the hash of the database's certificate. A
//! program between both, which has a certificate of its own, cannot pass the login on.

use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};

/// The tags of DER that a certificate begins with.
const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// RSA with PKCS #1 padding, and ECDSA: all algorithms of each begin with the same bytes.
const RSA: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
const ECDSA: [u8; 6] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];

/// The hash of a certificate, by the algorithm of its signature. `None` where the signature names no hash of its own, as
/// Ed25519 and RSA with PSS: PostgreSQL offers no binding for them, or only its later releases do.
pub fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    Some(digest(hash_of(signature_algorithm(certificate)?)?, certificate).as_ref().to_vec())
}

/// MD5 and SHA-1 are replaced by SHA-256.
fn hash_of(algorithm: &[u8]) -> Option<&'static Algorithm> {
    if let Some(rest) = algorithm.strip_prefix(&RSA[..]) {
        return match rest {
            [4 | 5 | 11] => Some(&SHA256),
            [12] => Some(&SHA384),
            [13] => Some(&SHA512),
            _ => None,
        };
    }
    match algorithm.strip_prefix(&ECDSA[..])? {
        [1] | [3, 2] => Some(&SHA256),
        [3, 3] => Some(&SHA384),
        [3, 4] => Some(&SHA512),
        _ => None,
    }
}

/// The object identifier of the algorithm that signed a certificate: of the certificate's parts the second one begins with
/// it.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (parts, _) = element(certificate, SEQUENCE)?;
    let (_, behind) = element(parts, SEQUENCE)?;
    let (algorithm, _) = element(behind, SEQUENCE)?;
    element(algorithm, OBJECT_IDENTIFIER).map(|(identifier, _)| identifier)
}

/// The content of the element that stands first, if it has this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let [found, length, rest @ ..] = der else { return None };
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        // Four bytes of length are more than any certificate needs.
        long @ 0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    (*found == tag).then(|| rest.split_at_checked(length)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{
        CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
        SignatureAlgorithm,
    };

    fn certificate(algorithm: &'static SignatureAlgorithm) -> Vec<u8> {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let params = CertificateParams::new(vec!["db.example".to_owned()]).unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_is_hashed_by_the_algorithm_of_its_signature() {
        let short = certificate(&PKCS_ECDSA_P256_SHA256);
        assert_eq!(end_point(&short).unwrap(), digest(&SHA256, &short).as_ref());
        let long = certificate(&PKCS_ECDSA_P384_SHA384);
        assert_eq!(end_point(&long).unwrap(), digest(&SHA384, &long).as_ref());
        assert_eq!(end_point(&certificate(&PKCS_ED25519)), None);
        let rsa = |last| hash_of(&[&RSA[..], &[last]].concat()).map(|hash| hash.output_len() * 8);
        assert_eq!(
            [4, 5, 11, 12, 13, 10].map(rsa),
            [Some(256), Some(256), Some(256), Some(384), Some(512), None]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64), cut in 0..600usize) {
            _ = end_point(&bytes);
            let whole = [&[SEQUENCE, 0x82, 1, 0][..], &bytes].concat();
            _ = end_point(&whole[..cut.min(whole.len())]);
        }
    }
}
