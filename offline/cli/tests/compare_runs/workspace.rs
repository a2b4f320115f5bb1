//! A directory with runs in it, recorded or made up, and what the program says of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{ProgramOutput, trainmon};

pub(crate) const RUN: &str = "Nov20_16-05-09-rank0-1f0a9c42";
const STEPS: u64 = 40;
/// The columns of the smallest tables.
pub(crate) const HEADER: &str = "vpp_stage,name,step,norm,shape,dtype\n";

/// A directory to work in.
pub(crate) struct Workspace {
    dir: TempDir,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::new().expect("a temporary directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    pub(crate) fn compare(&self, arguments: &[&str]) -> ProgramOutput {
        trainmon(self.dir.path(), &[&["compare-runs"], arguments].concat())
    }

    /// The comparison as JSON, and the exit code.
    pub(crate) fn json(&self, arguments: &[&str]) -> (Value, Option<i32>) {
        let said = self.compare(&[arguments, &["--json"]].concat());
        assert_eq!(said.err, "");
        (serde_json::from_str(&said.out).expect("JSON"), said.code)
    }

    /// Answer, step, kind, name and statistic of what parts first.
    pub(crate) fn first(&self, target: &str, golden: &[&str]) -> (String, Option<(u64, String, String)>) {
        let (found, _) = self.json(&[&[target], golden].concat());
        let answer = found["verdict"]["answer"].as_str().expect("an answer").to_owned();
        let first = &found["first"];
        let text = |key: &str| first[key].as_str().unwrap_or("").to_owned();
        (answer, first["step"].as_u64().map(|step| (step, text("kind"), text("name"))))
    }

    /// Writes a made-up run.
    pub(crate) fn make(&self, name: &str, run: &Made) {
        for (kind, header) in [
            ("actv", "vpp_stage,name,step,micro_step,norm,max,shape,dtype"),
            ("grad_reduced", "vpp_stage,name,step,norm,max,shape,dtype"),
            ("param_updated", "vpp_stage,name,step,norm,max,shape,dtype"),
        ] {
            let mut text = format!("{header}\n");
            for step in run.first..run.first + STEPS {
                for tensor in 0..8 {
                    let (tensor_name, micro) = match kind {
                        "actv" => (format!("layers.{tensor}.output"), "0,"),
                        _ => (format!("layers.{tensor}.weight"), ""),
                    };
                    let [norm, max] = [0, 1].map(|statistic| run.value(kind, tensor, step, statistic));
                    writeln!(text, "0,{tensor_name},{step},{micro}{norm},{max},\"[64, 64]\",torch.float32")
                        .expect("text");
                }
            }
            self.write(&format!("{name}/{RUN}/{kind}_0-999.csv"), &text);
        }
    }

    /// The recorded trainings of the repository: `offline/cli/tests/scripts/make_monitor_runs.py --bundle` makes them.
    pub(crate) fn recorded() -> Self {
        let workspace = Self::new();
        let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/monitor_runs.json.gz");
        let mut text = String::new();
        let file = fs::File::open(packed).expect("there");
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("whole");
        let runs: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(&text).expect("JSON");
        for (run, files) in runs {
            for (file, content) in files {
                workspace.write(&format!("{run}/{RUN}/{file}"), &content);
            }
        }
        workspace
    }
}

/// A run whose noise grows along the training.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub(crate) seed: u64,
    pub(crate) first: u64,
    /// Noise in the first step, and what it grows by from step to step.
    pub(crate) noise: f64,
    pub(crate) growth: f64,
    /// Decimals that are printed.
    pub(crate) decimals: Option<usize>,
    /// From this step on gradients of the third layer are off by this factor.
    pub(crate) fault: Option<(u64, f64)>,
    /// Whether those of all layers are.
    pub(crate) is_broad: bool,
    pub(crate) start: f64,
}

impl Made {
    pub(crate) const GOLDEN: Self =
        Self { seed: 1, first: 0, noise: 1e-6, growth: 1.12, decimals: None, fault: None, is_broad: false, start: 1.0 };

    fn value(&self, kind: &str, tensor: u64, step: u64, statistic: u64) -> String {
        let place = step * 1000 + tensor * 10 + statistic + kind.len() as u64 * 100_000;
        let clean = self.start * (1.0 + uniform(place)) * if statistic == 1 { 0.1 } else { 1.0 };
        let grown = (step - self.first.min(step)) as f64;
        let noise = self.noise * self.growth.powf(grown) * (2.0 * uniform(place ^ (self.seed << 40)) - 1.0);
        let fault =
            self.fault.filter(|(at, _)| step >= *at && (tensor == 2 || self.is_broad) && kind == "grad_reduced");
        let value = clean * (1.0 + noise) * fault.map_or(1.0, |(_, factor)| factor);
        match self.decimals {
            Some(decimals) => format!("{value:.decimals$}"),
            None => format!("{value}"),
        }
    }
}

/// A number from 0 to 1 that looks like chance.
fn uniform(seed: u64) -> f64 {
    let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
}

pub(crate) fn part(step: u64, kind: &str, name: &str) -> (String, Option<(u64, String, String)>) {
    ("diverges".to_owned(), Some((step, kind.to_owned(), name.to_owned())))
}

pub(crate) fn no_divergence() -> (String, Option<(u64, String, String)>) {
    ("no_divergence".to_owned(), None)
}
