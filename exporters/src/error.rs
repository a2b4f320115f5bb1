//! What can go wrong while a batch leaves the process.

use std::io;
use std::path::PathBuf;

/// A batch was not delivered whole. The exporter is given the next batch all the same.
#[derive(Debug, thiserror::Error)]
#[error("{lost_records} records lost")]
pub struct ExportFailure {
    /// Records of the batch that will never arrive.
    pub lost_records: u64,
    /// The first thing that went wrong.
    pub source: ExportError,
}

/// What can go wrong in an exporter.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum ExportError {
    /// A file could not be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A directory could not be made.
    #[error("cannot create directory `{}`", path.display())]
    CreateDirectory { path: PathBuf, source: io::Error },
    /// A directory could not be listed.
    #[error("cannot list directory `{}`", path.display())]
    List { path: PathBuf, source: io::Error },
    /// Something of an exporter that lives outside this crate.
    #[error("{message}")]
    Other { message: String, hint: &'static str },
    /// The scrape page's address could not be bound.
    #[error("cannot listen on {address}")]
    Bind { address: std::net::SocketAddr, source: io::Error },
    /// The scrape page's port would be above the highest there is; `port` is that of local rank 0.
    #[error(
        "`prometheus.port` + local rank: expected at most 65535, found {port} + {local_rank} = {}",
        u64::from(*port) + u64::from(*local_rank)
    )]
    NoSuchPort { port: u16, local_rank: u32 },
    /// More tags than the user allows: a limit, not a fault of the disk. `left_out` counts different tags, so far.
    #[error("{left_out} tags are beyond the most of {max}")]
    TooManyTags { max: usize, left_out: usize },
    /// The OTLP receiver's address cannot be used. It is not quoted: it may hold a password. `source_name` is the key or
    /// the variable that gives it.
    #[error("`{source_name}` is no http:// or https:// address without credentials")]
    OtlpEndpoint { source_name: String },
    /// A certificate or key for the OTLP receiver cannot be used.
    #[error("cannot use `{}`", path.display())]
    OtlpCertificate { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    /// A header for the OTLP receiver cannot be sent. Its value is not quoted.
    #[error("the header `{name}` or its value has characters that cannot be sent")]
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
    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Write { source, .. } | Self::CreateDirectory { source, .. }
                if source.kind() == io::ErrorKind::StorageFull =>
            {
                "free space on that disk; writing resumes by itself with the next step"
            }
            Self::Write { .. } | Self::CreateDirectory { .. } => {
                "make the directory writable, or name another in MONITOR_OUTPUT_DIR or `output_dir`"
            }
            Self::Other { hint, .. } => hint,
            Self::TooManyTags { .. } => {
                "raise `tensorboard.max_tags`, or measure less: `targets`, `ops`; TensorBoard is slow with many tags"
            }
            Self::List { .. } => "make the directory readable, or leave `append_output` out",
            Self::Bind { source, .. } => bind_hint(source.kind()),
            Self::NoSuchPort { .. } => {
                "every process of a machine listens on a port of its own: set a lower `prometheus.port` (0 lets the \
                 system choose)"
            }
            Self::OtlpEndpoint { .. } => "write http://localhost:4318, or http://localhost:4317 for gRPC",
            Self::OtlpCertificate { .. } => "name a readable PEM file",
            Self::OtlpHeader { .. } => "write visible ASCII",
            Self::OtlpConnection { .. } => "check `otlp.endpoint` and the certificates",
            Self::Start { .. } => "the machine is out of threads or file descriptors: see `ulimit -u -n`",
        }
    }
}

/// What a person can do about an address that cannot be listened on.
fn bind_hint(why: io::ErrorKind) -> &'static str {
    match why {
        io::ErrorKind::AddrInUse => "another process listens there: set `prometheus.port` (0 lets the system choose)",
        io::ErrorKind::AddrNotAvailable => {
            "`prometheus.bind` is no address of this machine: write 127.0.0.1, or 0.0.0.0 to let other machines in"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 are for privileged processes: set a higher `prometheus.port` (0 lets the system choose)"
        }
        _ => "look at `prometheus.bind` and `prometheus.port`: the system does not take this address",
    }
}
