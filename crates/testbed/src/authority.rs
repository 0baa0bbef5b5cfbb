//! A certificate authority for one etcd, made with openssl.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::command;

/// Longer than any test.
const DAYS: &str = "30";

/// An authority that signs certificates of servers and clients.
#[derive(Debug, Clone)]
pub struct Authority {
    folder: PathBuf,
}

/// A certificate and its key, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Authority {
    /// The authority in this folder, made if it is not there yet.
    pub(crate) fn open(folder: PathBuf) -> Result<Self> {
        let authority = Self { folder };
        if !authority.certificate().exists() {
            fs::create_dir_all(&authority.folder)?;
            authority.request("ca", "testbed", &[])?;
        }
        Ok(authority)
    }

    /// Its own certificate: what clients trust.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// Signs a certificate for a client of this name (etcd takes it as the name of the user), or
    /// a new one in place of the last.
    ///
    /// # Errors
    /// When openssl fails.
    pub fn issue(&self, name: &str) -> Result<Identity> {
        self.request(
            name,
            name,
            &[
                "basicConstraints=critical,CA:FALSE",
                "extendedKeyUsage=serverAuth,clientAuth",
                "subjectAltName=IP:127.0.0.1,DNS:localhost",
            ],
        )
    }

    /// Makes a key and a certificate: the authority's own if there are no extensions.
    fn request(&self, file: &str, name: &str, extensions: &[&str]) -> Result<Identity> {
        let [certificate, key] =
            ["crt", "key"].map(|extension| self.folder.join(format!("{file}.{extension}")));
        let mut openssl = Command::new(command::find("openssl").context("openssl is missing")?);
        openssl
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ])
            .args(["-noenc", "-days", DAYS, "-subj", &format!("/CN={name}")]);
        if !extensions.is_empty() {
            openssl.arg("-CA").arg(self.certificate());
            openssl.arg("-CAkey").arg(self.folder.join("ca.key"));
        }
        for extension in extensions {
            openssl.args(["-addext", extension]);
        }
        // Beside, then renamed: whoever watches the files sees a whole one, and the key first.
        let partial = |path: &Path| path.with_extension("partial");
        let (new_certificate, new_key) = (partial(&certificate), key.with_extension("new"));
        openssl
            .arg("-keyout")
            .arg(&new_key)
            .arg("-out")
            .arg(&new_certificate);
        command::output(&mut openssl)?;
        fs::rename(new_key, &key)?;
        fs::rename(new_certificate, &certificate)?;
        Ok(Identity { certificate, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_signed_by_the_authority() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(folder.path().to_owned()).unwrap();
        let first = authority.issue("east").unwrap();
        let before = fs::read(&first.certificate).unwrap();
        assert_eq!(authority.issue("east").unwrap(), first);
        assert_ne!(fs::read(&first.certificate).unwrap(), before);
        let ca = authority.certificate();
        let verified = command::output(
            Command::new("openssl")
                .arg("verify")
                .arg("-CAfile")
                .arg(ca)
                .arg(first.certificate),
        );
        assert!(verified.unwrap().trim_end().ends_with("OK"));
    }
}
