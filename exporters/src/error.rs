//! Errors of exporters.

use std::io;
use std::path::PathBuf;

/// A batch that was not delivered completely. The exporter still receives the next batch.
#[derive(Debug, thiserror::Error)]
#[error("records lost: {lost_records}")]
pub struct ExportFailure {
    /// The number of records of the batch that are lost.
    pub lost_records: u64,
    /// The first error.
    pub source: ExportError,
}

/// An error in an exporter.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum ExportError {
    /// A file could not be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A directory could not be created.
    #[error("cannot create directory `{}`", path.display())]
    CreateDirectory { path: PathBuf, source: io::Error },
    /// A directory could not be listed.
    #[error("cannot list directory `{}`", path.display())]
    List { path: PathBuf, source: io::Error },
    /// An error of an exporter outside of this crate.
    #[error("{message}")]
    Other { message: String, hint: &'static str },
    /// The address of the metrics page could not be bound.
    #[error("cannot listen on {address}")]
    Bind { address: std::net::SocketAddr, source: io::Error },
    /// The port of the metrics page would exceed 65535; `port` is that of local rank 0.
    #[error(
        "`prometheus.port` + local rank is {port} + {local_rank} = {}, expected at most 65535",
        u64::from(*port) + u64::from(*local_rank)
    )]
    NoSuchPort { port: u16, local_rank: u32 },
    /// More tags than the configured limit. `left_out` is the number of different tags beyond it so far.
    #[error("tags beyond the limit of {max}: {left_out}")]
    TooManyTags { max: usize, left_out: usize },
    /// The address of the OTLP receiver is invalid. It is not quoted, because it may contain a password. `source_name`
    /// is the key or the variable that sets it.
    #[error("`{source_name}` is not an http:// or https:// address without credentials")]
    OtlpEndpoint { source_name: String },
    /// A certificate or key for the OTLP receiver is invalid.
    #[error("cannot use `{}`", path.display())]
    OtlpCertificate { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    /// A header for the OTLP receiver is invalid. Its value is not quoted.
    #[error("header `{name}` or its value contains invalid characters")]
    OtlpHeader { name: String },
    /// A connection to the OTLP receiver cannot be prepared.
    #[error("cannot prepare the connection")]
    OtlpConnection { source: Box<dyn std::error::Error + Send + Sync> },
    /// A thread or runtime of the exporter could not be started.
    #[error("cannot start the {what}")]
    Start { what: &'static str, source: io::Error },
}

#[cfg(feature = "csv")]
impl From<trainmon_run_files::WriteError> for ExportError {
    fn from(error: trainmon_run_files::WriteError) -> Self {
        use trainmon_run_files::WriteError;
        match error {
            WriteError::Write { path, source } => Self::Write { path, source },
            WriteError::CreateDirectory { path, source } => Self::CreateDirectory { path, source },
        }
    }
}

impl ExportError {
    /// Advice on what to do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Write { source, .. } | Self::CreateDirectory { source, .. }
                if source.kind() == io::ErrorKind::StorageFull =>
            {
                "free space on that disk; trainmon resumes writing with the next step"
            }
            Self::Write { .. } | Self::CreateDirectory { .. } => {
                "make the directory writable, or set another one with MONITOR_OUTPUT_DIR or `output_dir`"
            }
            Self::Other { hint, .. } => hint,
            Self::TooManyTags { .. } => {
                "raise `tensorboard.max_tags`, or reduce `targets` or `ops`; TensorBoard is slow with many tags"
            }
            Self::List { .. } => "make the directory readable, or remove `append_output`",
            Self::Bind { source, .. } => bind_hint(source.kind()),
            Self::NoSuchPort { .. } => {
                "every process of a machine listens on a port of its own: set a lower `prometheus.port` (0 lets the \
                 system choose)"
            }
            Self::OtlpEndpoint { .. } => "use an address like http://localhost:4318, or http://localhost:4317 for gRPC",
            Self::OtlpCertificate { .. } => "set it to a readable PEM file",
            Self::OtlpHeader { .. } => "use visible ASCII characters only",
            Self::OtlpConnection { .. } => "check `otlp.endpoint` and the certificates",
            Self::Start { .. } => "raise the limits on threads or file descriptors (`ulimit -u -n`)",
        }
    }
}

/// Advice about an address that cannot be bound.
fn bind_hint(why: io::ErrorKind) -> &'static str {
    match why {
        io::ErrorKind::AddrInUse => "another process uses the port: set `prometheus.port` (0 lets the system choose)",
        io::ErrorKind::AddrNotAvailable => {
            "set `prometheus.bind` to an address of this host: 127.0.0.1, or 0.0.0.0 for access from other hosts"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 require privileges: set a higher `prometheus.port` (0 lets the system choose)"
        }
        _ => "check `prometheus.bind` and `prometheus.port`",
    }
}
