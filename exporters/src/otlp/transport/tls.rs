//! Certificates and keys from PEM files.

use std::path::Path;
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::ExportError;
use crate::otlp::settings::Tls;

type Cause = Box<dyn std::error::Error + Send + Sync>;

fn unusable(path: &Path, source: impl Into<Cause>) -> ExportError {
    ExportError::OtlpCertificate { path: path.to_path_buf(), source: source.into() }
}

fn read(path: &Path) -> Result<Vec<u8>, ExportError> {
    std::fs::read(path).map_err(|error| unusable(path, error))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ExportError> {
    let pem = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| unusable(path, error))?;
    if found.is_empty() { Err(unusable(path, "it contains no certificate")) } else { Ok(found) }
}

/// For HTTP.
pub(super) fn client_config(tls: &Tls) -> Result<ClientConfig, ExportError> {
    // Set explicitly, because the host process may have installed another default provider, or none.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let system = Path::new("the system's certificates");
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(system, error))?;
    let builder = match &tls.certificate {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| unusable(path, error))?;
            }
            builder.with_root_certificates(roots)
        }
        None => builder.with_native_roots().map_err(|error| unusable(system, error))?,
    };
    let Some((certificate, key)) = &tls.identity else { return Ok(builder.with_no_client_auth()) };
    let own_key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| unusable(key, error))?;
    builder.with_client_auth_cert(certificates(certificate)?, own_key).map_err(|error| unusable(certificate, error))
}

/// For HTTP without encryption: contains no roots, and is never used.
pub(super) fn without_roots() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth()
}

/// For gRPC.
pub(super) fn grpc_config(tls: &Tls) -> Result<ClientTlsConfig, ExportError> {
    let config = match &tls.certificate {
        Some(path) => {
            certificates(path)?;
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?))
        }
        None => ClientTlsConfig::new().with_native_roots(),
    };
    let Some((certificate, key)) = &tls.identity else { return Ok(config) };
    certificates(certificate)?;
    let own_key = read(key)?;
    PrivateKeyDer::from_pem_slice(&own_key).map_err(|error| unusable(key, error))?;
    Ok(config.identity(Identity::from_pem(read(certificate)?, own_key)))
}
