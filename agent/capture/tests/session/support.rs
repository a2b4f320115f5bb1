//! What these tests share.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use trainmon_capture::{
    CaptureConfig, CapturePlace, CapturePlan, Content, Direction, Notices, Part, Session, Tensor, Values,
};
use trainmon_capture_files::{Document, Operator, TensorFacts, Value, parse_document};
use trainmon_core::config::CaptureDialect;
use trainmon_core::{Dtype, TensorView};

/// Says that a test cannot run here.
pub(crate) fn skip(name: &str, reason: &str) {
    println!("SKIPPED {name}: {reason}");
    if let Some(log) = std::env::var_os("TRAINMON_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        writeln!(log, "{name}: {reason}").unwrap();
    }
}

/// A capture in a directory of its own, and all that was said.
pub(crate) struct Host {
    pub(crate) directory: PathBuf,
    pub(crate) session: Session,
    said: Arc<Mutex<Vec<String>>>,
    _root: tempfile::TempDir,
}

/// The plan of a config file's keys.
pub(crate) fn plan(keys: &str, dump_path: &Path) -> Arc<CapturePlan> {
    let text = format!("{{\"dump_path\": {:?}, {keys}}}", dump_path.to_str().unwrap());
    let parsed = CaptureConfig::parse(&text, "test", CaptureDialect::Trainmon).map_err(|errors| errors.to_string());
    Arc::new(CapturePlan::new(parsed.unwrap().config))
}

pub(crate) const PLACE: CapturePlace = CapturePlace { step: 0, rank: Some(0) };

impl Host {
    pub(crate) fn new(keys: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().to_path_buf();
        Self::on(keys, &path, root)
    }

    pub(crate) fn on(keys: &str, path: &Path, root: tempfile::TempDir) -> Self {
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let notices = Notices::new(move |notice| heard.lock().unwrap().push(notice.message.clone()));
        let session = Session::open(plan(keys, path), PLACE, notices).unwrap();
        Self { directory: path.join("step0/rank0"), session, said, _root: root }
    }

    /// One call of a function with these inputs and outputs; its name if it is captured.
    pub(crate) fn call(
        &self,
        api: &str,
        input: impl FnOnce(&mut Values<'_>),
        output: impl FnOnce(&mut Values<'_>),
    ) -> Option<String> {
        let name = self.session.begin_call("Functional", api).forward;
        let is_wanted = self.session.begin(&name, Direction::Forward);
        if is_wanted {
            let mut entry = self.session.entry(&name);
            if entry.wants(Part::InputArgs) {
                let values = entry.part(Part::InputArgs);
                values.begin_list();
                input(values);
                values.end_list();
            }
            if entry.wants(Part::Output) {
                let values = entry.part(Part::Output);
                values.begin_list();
                output(values);
                values.end_list();
            }
            entry.append();
        }
        self.session.end(&name);
        is_wanted.then_some(name)
    }

    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn document(&self) -> Document {
        self.session.write_documents().unwrap();
        document(&self.directory)
    }

    /// Text of a document as it is now.
    pub(crate) fn text(&self, name: &str) -> String {
        self.session.write_documents().unwrap();
        std::fs::read_to_string(self.directory.join(name)).unwrap()
    }
}

pub(crate) fn document(directory: &Path) -> Document {
    let path = directory.join("dump.json");
    parse_document(&std::fs::read(&path).unwrap(), &path).unwrap()
}

pub(crate) fn names(document: &Document) -> Vec<&str> {
    document.operators.iter().map(|operator| &*operator.name).collect()
}

pub(crate) fn operator<'d>(document: &'d Document, name: &str) -> &'d Operator {
    document.operators.iter().find(|operator| &*operator.name == name).unwrap()
}

pub(crate) fn tensor_of(value: &Value) -> &TensorFacts {
    let trainmon_capture_files::Leaf::Tensor(facts) = &value.leaf else { panic!("{value:?}") };
    facts
}

/// A tensor in the host's memory.
pub(crate) fn host(view: TensorView<'_>, dims: &[i64], put: impl FnOnce(&Tensor<'_>)) {
    let (kind, dtype, requires_grad) = ("", view.dtype().torch_name(), Some(false));
    put(&Tensor {
        kind,
        dtype,
        shape: dims,
        requires_grad,
        spread: None,
        is_from_empty: false,
        content: Content::Host(view),
    });
}

/// A row of float32.
pub(crate) fn floats(values: &mut Values<'_>, numbers: &[f32]) {
    let dims = [numbers.len() as i64];
    host(TensorView::from_slice(numbers, &dims).unwrap(), &dims, |tensor| {
        assert_eq!(values.tensor(tensor), None);
    });
}

/// A tensor of these bytes.
pub(crate) fn bytes(values: &mut Values<'_>, dtype: Dtype, dims: &[i64], bytes: &[u8]) {
    // Aligned for every dtype.
    let mut aligned = vec![0; bytes.len() + 16];
    let shift = aligned.as_ptr().align_offset(16);
    aligned[shift..shift + bytes.len()].copy_from_slice(bytes);
    let view = TensorView::from_bytes(dtype, dims, &aligned[shift..shift + bytes.len()]).unwrap();
    host(view, dims, |tensor| assert_eq!(values.tensor(tensor), None));
}

/// The numbers of a file of one tensor.
pub(crate) fn numbers_in(path: &Path) -> Vec<f64> {
    let file = trainmon_tensor_files::open(path).unwrap();
    let [entry] = file.entries() else { panic!("{:?}", file.entries()) };
    file.read(&entry.name).unwrap().to_f64()
}
