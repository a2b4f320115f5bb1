//! The keys of live control, and the check they need beyond the schema's.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::diagnostic::DiagnosticKind as Kind;
use super::report::{Fault, Report};

/// Switching measurements on and off while the training runs.
#[derive(Clone, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Control {
    /// On. Rank 0 listens; `trainmon ctl` speaks to it.
    #[default = true]
    pub enabled: bool,
    /// The address to listen on: of this machine only.
    #[schemars(extend("x-hint" = "write 127.0.0.1; from another machine come in over ssh: ssh -L 9470:127.0.0.1:9470 host"))]
    #[default(IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub bind: IpAddr,
    /// The HTTP port; 0 lets the system choose. Absent: the unix socket only.
    pub port: Option<u16>,
    /// The unix socket, its path shorter than 108 bytes. Absent: `control.sock` in the control directory.
    #[schemars(length(min = 1))]
    pub socket: Option<PathBuf>,
    /// The file that gets the token, readable by its owner only. Absent: `control.token` in the control directory.
    #[schemars(length(min = 1))]
    pub token_file: Option<PathBuf>,
    /// The control directory, through which the ranks agree: on a file system that all of them share. Absent: the rank's
    /// directory where there is one process, else `control-<run>` beside the run directories.
    #[schemars(length(min = 1))]
    pub directory: Option<PathBuf>,
}

impl Control {
    /// Refuses what other machines could reach.
    pub(super) fn check(&self, report: &mut Report<'_>) {
        if !self.bind.is_loopback() {
            let key = "control.bind";
            let fault = Fault::new(Kind::OutOfRange, self.bind.to_string()).expected("an address of this machine only");
            let hint = "write 127.0.0.1; from another machine come in over ssh: ssh -L 9470:127.0.0.1:9470 host";
            report.error(report.place(key), key, fault.hint(hint));
        }
    }
}
