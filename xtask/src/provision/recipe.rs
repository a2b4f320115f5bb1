//! What the Python environments are made of.

/// What of torch is in an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Torch {
    /// Nothing.
    Absent,
    /// Without a GPU neither the libraries of CUDA nor Triton, which come with it.
    Alone,
    /// As `Alone`, with Triton.
    WithTriton,
    /// All that comes with its wheel.
    Unmodified,
}

impl Torch {
    /// Whether it is of no use here what comes with its wheel.
    pub(super) fn is_reduced(self, is_without_gpu: bool) -> bool {
        is_without_gpu && matches!(self, Self::Alone | Self::WithTriton)
    }
}

/// What an environment is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipe {
    /// Its directory below `target/python`.
    pub(super) name: &'static str,
    /// Files of agent/python/requirements: what to install, and the versions of what that depends on.
    pub(super) requirements: &'static str,
    pub(super) constraints: Option<&'static str>,
    /// Whether the first file names every package: what they say they depend on is not asked.
    pub(super) is_complete: bool,
    pub(super) torch: Torch,
    /// What the installation takes while it runs, in GiB.
    pub(super) gigabytes: u64,
    /// What is fetched, for the one who waits.
    pub(super) download: &'static str,
    /// The last Python that has wheels of it.
    pub(super) last_python: Option<(u32, u32)>,
    /// The Python it is made with; that of the PATH if none is named.
    pub(super) python: Option<&'static str>,
}

/// A small environment of one file; each recipe below says what is otherwise.
const PLAIN: Recipe = Recipe {
    name: "",
    requirements: "",
    constraints: None,
    is_complete: false,
    torch: Torch::Absent,
    gigabytes: 1,
    download: "",
    last_python: None,
    python: None,
};

/// One with torch.
const TORCH: Recipe = Recipe { torch: Torch::Alone, gigabytes: 8, download: "3 GB", ..PLAIN };

pub(super) const CHECKS: Recipe = Recipe {
    name: "main",
    requirements: "test.txt",
    constraints: Some("constraints.txt"),
    torch: Torch::WithTriton,
    gigabytes: 10,
    ..TORCH
};

/// The receiver of the OTLP tests, apart from the checks' environment: Rust tests use it, before that one exists.
pub(super) const OTLP: Recipe = Recipe { name: "otlp", requirements: "otlp.txt", download: "20 MB", ..PLAIN };

/// What builds a release: for other systems than this one too.
pub(super) const DIST: Recipe = Recipe { name: "dist", requirements: "dist.txt", download: "100 MB", ..PLAIN };

/// What reads the workflows of a public forge.
pub(super) const WORKFLOWS: Recipe =
    Recipe { name: "workflows", requirements: "workflows.txt", download: "15 MB", ..PLAIN };

/// The oldest torch the wheel is tried on.
pub(super) const OLDEST_TORCH: Recipe =
    Recipe { name: "torch21", requirements: "torch21.txt", last_python: Some((3, 11)), ..TORCH };

/// A torch between the oldest and that of the checks. Torch has wheels for 3.13, this numpy has not.
pub(super) const MIDDLE_TORCH: Recipe =
    Recipe { name: "torch26", requirements: "torch26.txt", last_python: Some((3, 12)), ..TORCH };

/// The newest torch and frameworks, as they come: nothing of torch's wheel is replaced.
pub(super) const NEWEST: Recipe = Recipe {
    name: "newest",
    requirements: "newest.txt",
    torch: Torch::Unmodified,
    gigabytes: 12,
    download: "4 GB",
    ..TORCH
};

/// vLLM, which the plugin's check runs: it asks for a torch that the package index has not, and works with another.
pub(super) const VLLM: Recipe =
    Recipe { name: "vllm", requirements: "vllm.txt", is_complete: true, gigabytes: 9, ..TORCH };

/// Torch and Python of the machines with a GPU that the device kit is run on, and nothing else.
pub(super) const DEVICE_KIT: Recipe =
    Recipe { name: "torch211", requirements: "torch211.txt", python: Some("3.12"), ..TORCH };

/// Which versions of torch, besides that of the checks, the wheel is tried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    /// The oldest.
    Short,
    /// All.
    Full,
}

impl Matrix {
    pub(super) fn other_torches(self) -> &'static [Recipe] {
        match self {
            Self::Short => &[OLDEST_TORCH],
            Self::Full => &[OLDEST_TORCH, MIDDLE_TORCH],
        }
    }
}
