//! The keys of live control, and the checks beyond the schema.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::diagnostic::DiagnosticKind as Kind;
use super::report::{Fault, Report};

/// Live control of measurements during training.
#[derive(Clone, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Control {
    /// Serve live control on rank 0, for `trainmon ctl`.
    #[default = true]
    pub enabled: bool,
    /// The address to listen on; only an address of this machine.
    #[schemars(extend("x-hint" = "write 127.0.0.1; from another machine, use an SSH tunnel: ssh -L 9470:127.0.0.1:9470 host"))]
    #[default(IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub bind: IpAddr,
    /// The HTTP port; with 0 the system chooses one. Default: the Unix socket only.
    pub port: Option<u16>,
    /// The Unix socket; its path must be shorter than 108 bytes. Default: `control.sock` in the control directory.
    #[schemars(length(min = 1))]
    pub socket: Option<PathBuf>,
    /// The file that trainmon writes the token to, readable only by its owner. Default: `control.token` in the control directory.
    #[schemars(length(min = 1))]
    pub token_file: Option<PathBuf>,
    /// The control directory, on a file system that all ranks share. Default: the rank's directory for one process, else
    /// `control-<run>` beside the run directories.
    #[schemars(length(min = 1))]
    pub directory: Option<PathBuf>,
}

impl Control {
    /// Refuses addresses that other machines could reach.
    pub(super) fn check(&self, report: &mut Report<'_>) {
        if !self.bind.is_loopback() {
            let key = "control.bind";
            let fault = Fault::new(Kind::OutOfRange, self.bind.to_string()).expected("an address of this machine only");
            let hint = "write 127.0.0.1; from another machine, use an SSH tunnel: ssh -L 9470:127.0.0.1:9470 host";
            report.error(report.place(key), key, fault.hint(hint));
        }
    }
}
