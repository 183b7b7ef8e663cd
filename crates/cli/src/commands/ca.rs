//! `windlass ca`: creates a private CA and certificates.

use crate::system;
use crate::ui::error::CliError;
use crate::ui::message::message;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::ServerName;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The CA's name in the certificates that it signs.
const AUTHORITY: &str = "Windlass CA";
/// Its files: the certificate and the key.
const CA_CERT: &str = "ca.pem";
const CA_KEY: &str = "ca.key";
/// How long before now a certificate begins to be valid: the clocks of a farm differ by less.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);

/// Creates a private CA and certificates.
#[derive(Subcommand, Debug)]
pub enum CaCommand {
    /// Create a CA: ca.pem for all machines, ca.key to keep secret
    Init(InitArgs),
    /// Create a certificate and its key, signed by the CA
    Issue(IssueArgs),
}

#[derive(Args, Debug)]
pub struct InitArgs {
    /// Directory for its files
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Days for which it is valid
    #[arg(long, value_name = "N", default_value_t = 3650, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    days: u64,
}

#[derive(Args, Debug)]
pub struct IssueArgs {
    /// Directory of the CA; the new files go there too
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Server certificate with these host names and addresses
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', required_unless_present = "worker")]
    server: Vec<String>,
    /// Worker certificate for the worker of this name
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    worker: Option<String>,
    /// Days for which it is valid
    #[arg(long, value_name = "N", default_value_t = 825, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    days: u64,
}

/// Runs the command `windlass ca …`.
pub fn command(command: CaCommand) -> Result<(), CliError> {
    match command {
        CaCommand::Init(args) => Ok(init(&args)?),
        CaCommand::Issue(args) => issue(args),
    }
}

fn init(args: &InitArgs) -> anyhow::Result<()> {
    let made = system::new_private_dir(&args.dir);
    made.with_context(|| format!("cannot create the directory {}", args.dir.display()))?;
    let key = KeyPair::generate()?;
    let mut params = authority()?;
    valid_for(&mut params, args.days);
    let cert = params.self_signed(&key)?;
    let files = (args.dir.join(CA_CERT), args.dir.join(CA_KEY));
    write_both(&files, &cert.pem(), &key.serialize_pem())?;
    message!(
        "created {} for all machines of the farm, and {}, which stays here",
        files.0.display(),
        files.1.display()
    );
    Ok(())
}

/// The CA's parameters. They are the same for every CA; only its key is its own.
fn authority() -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, AUTHORITY);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn valid_for(params: &mut CertificateParams, days: u64) {
    let now = SystemTime::now();
    params.not_before = (now - CLOCK_SKEW).into();
    params.not_after = (now + Duration::from_secs(days * 86_400)).into();
}

fn issue(args: IssueArgs) -> Result<(), CliError> {
    let (names, purpose, file) = match args.worker {
        None => {
            let file = args.server.first().cloned().unwrap_or_default();
            (args.server, ExtendedKeyUsagePurpose::ServerAuth, file)
        }
        Some(worker) => {
            let file = format!("worker-{worker}");
            (vec![worker], ExtendedKeyUsagePurpose::ClientAuth, file)
        }
    };
    let is_worker = purpose == ExtendedKeyUsagePurpose::ClientAuth;
    for name in &names {
        let fits = match ServerName::try_from(name.as_str()) {
            Ok(ServerName::DnsName(_)) => true,
            Ok(_) => !is_worker,
            Err(_) => false,
        };
        if !fits {
            let also = if is_worker { "" } else { " or an IP address" };
            return Err(CliError::usage(format!(
                "a certificate cannot name '{name}': give a host name{also}"
            )));
        }
    }
    let made = sign(&args.dir, names, purpose, args.days, &file)?;
    message!("created {} and {}", made.0.display(), made.1.display());
    Ok(())
}

fn sign(
    dir: &Path,
    names: Vec<String>,
    purpose: ExtendedKeyUsagePurpose,
    days: u64,
    file: &str,
) -> anyhow::Result<(PathBuf, PathBuf)> {
    let ca_key = dir.join(CA_KEY);
    let pem = std::fs::read_to_string(&ca_key).with_context(|| {
        format!("cannot read {}; 'windlass ca init {}' creates it", ca_key.display(), dir.display())
    })?;
    let pem =
        KeyPair::from_pem(&pem).with_context(|| format!("{} is not a private key", ca_key.display()))?;
    let issuer = Issuer::new(authority()?, pem);
    let mut params = CertificateParams::new(names.clone())?;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, names[0].as_str());
    params.extended_key_usages = vec![purpose];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    valid_for(&mut params, days);
    let key = KeyPair::generate()?;
    let cert = params.signed_by(&key, &issuer)?;
    let files = (dir.join(format!("{file}.pem")), dir.join(format!("{file}.key")));
    write_both(&files, &cert.pem(), &key.serialize_pem())?;
    Ok(files)
}

/// Writes a certificate and its key; refuses to overwrite files.
fn write_both((cert, key): &(PathBuf, PathBuf), cert_pem: &str, key_pem: &str) -> anyhow::Result<()> {
    for path in [cert, key] {
        anyhow::ensure!(!path.exists(), "{} exists already; move it away first", path.display());
    }
    for (path, public, text) in [(key, false, key_pem), (cert, true, cert_pem)] {
        let written = system::new_file(path, public).and_then(|mut file| file.write_all(text.as_bytes()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
