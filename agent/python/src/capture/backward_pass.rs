//! Records a module's gradients where they enter and leave it: its inputs and outputs pass through torch's identity
//! function, as in torch's module hooks.
//!
//! Written in Rust because each call of a module needs two of these: in Python they took a quarter of the cost of capturing
//! modules.

use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use crate::capture::modules::ModuleCall;
use crate::capture::shared::Quiet;
use crate::torch::Torch;

const NODE: &str = "BackwardHookFunctionBackward";

/// The backward pass of one call of a module. Its nodes receive exactly this module's share of a gradient.
#[pyclass(frozen, module = "trainmon._trainmon")]
pub(crate) struct BackwardPass {
    call: Py<ModuleCall>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    inputs: Spread,
    /// Whether an input passed through a node.
    has_inputs: bool,
    outputs: Spread,
    /// The gradients of the outputs, until those of the inputs are complete.
    of: Option<Py<PyTuple>>,
}

/// The positions of the tensors among `count` values.
#[derive(Clone, Default)]
struct Spread {
    places: Vec<usize>,
    count: usize,
}

impl Spread {
    /// Returns the gradients at their tensors' positions.
    fn of<'py>(&self, gradients: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
        let mut spread = vec![gradients.py().None().into_bound(gradients.py()); self.count];
        for (&place, gradient) in self.places.iter().zip(gradients.iter_borrowed()) {
            spread[place] = gradient.to_owned();
        }
        PyTuple::new(gradients.py(), spread)
    }
}

#[pymethods]
impl BackwardPass {
    #[new]
    fn new(call: Py<ModuleCall>) -> Self {
        Self { call, state: Mutex::default() }
    }

    /// Returns the arguments for the module's call.
    fn take_inputs<'py>(slf: &Bound<'py, Self>, args: Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
        let Some(passed) = Passed::of(&args)? else { return Ok(args) };
        {
            let mut state = slf.get().state.lock();
            state.has_inputs = true;
            state.inputs = passed.spread;
        }
        hook(&passed.node, slf, Side::Inputs)?;
        Ok(passed.values)
    }

    /// Returns the outputs that the module must return.
    fn take_outputs<'py>(slf: &Bound<'py, Self>, output: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let values = match output.cast::<PyTuple>() {
            Ok(values) => values.clone(),
            Err(_) => PyTuple::new(slf.py(), [&output])?,
        };
        let Some(passed) = Passed::of(&values)? else { return Ok(output) };
        slf.get().state.lock().outputs = passed.spread;
        hook(&passed.node, slf, Side::Outputs)?;
        match output.cast::<PyTuple>() {
            Ok(tuple) => of_type(tuple, passed.values),
            Err(_) => passed.values.get_item(0),
        }
    }
}

impl BackwardPass {
    fn enters(&self, py: Python<'_>, of: &Bound<'_, PyTuple>) -> PyResult<()> {
        let outputs = self.state.lock().outputs.clone();
        let of = outputs.of(of)?.unbind();
        let has_inputs = {
            let mut state = self.state.lock();
            state.of = Some(of);
            state.has_inputs
        };
        self.call.get().begin_backward(py);
        if !has_inputs {
            // No gradient leaves the module, so no other hook follows.
            self.end(py, &PyTuple::empty(py));
        }
        Ok(())
    }

    fn leaves(&self, py: Python<'_>, into: &Bound<'_, PyTuple>) -> PyResult<()> {
        let inputs = {
            let state = self.state.lock();
            // Without it, the gradient bypassed the module's outputs, as in a second backward pass.
            state.of.as_ref().map(|_| state.inputs.clone())
        };
        if let Some(inputs) = inputs {
            self.end(py, &inputs.of(into)?);
        }
        Ok(())
    }

    fn end(&self, py: Python<'_>, into: &Bound<'_, PyTuple>) {
        let of = self.state.lock().of.take();
        if let Some(of) = of {
            self.call.get().end_backward(py, into, of.bind(py));
        }
    }
}

#[derive(Clone, Copy)]
enum Side {
    Inputs,
    Outputs,
}

/// The hook that a node calls when its gradients are complete. Returns nothing.
#[pyclass(frozen, module = "trainmon._trainmon")]
struct NodeHook {
    pass: Py<BackwardPass>,
    side: Side,
}

#[pymethods]
impl NodeHook {
    /// `into`: the gradients of the node's inputs; `of`: those of its outputs.
    fn __call__(&self, py: Python<'_>, into: &Bound<'_, PyTuple>, of: &Bound<'_, PyTuple>) {
        let pass = self.pass.get();
        let done = match self.side {
            Side::Inputs => pass.leaves(py, into),
            Side::Outputs => pass.enters(py, of),
        };
        if let Err(error) = done {
            pass.call.get().failed("module backward", &error);
        }
    }
}

fn hook(node: &Bound<'_, PyAny>, pass: &Bound<'_, BackwardPass>, side: Side) -> PyResult<()> {
    let hook = Py::new(node.py(), NodeHook { pass: pass.clone().unbind(), side })?;
    node.call_method1(intern!(node.py(), "register_hook"), (hook,))?;
    Ok(())
}

/// Values whose tensors passed through a node.
struct Passed<'py> {
    values: Bound<'py, PyTuple>,
    spread: Spread,
    node: Bound<'py, PyAny>,
}

impl<'py> Passed<'py> {
    /// Passes the values through a node; `None` if no gradient would reach the node.
    fn of(values: &Bound<'py, PyTuple>) -> PyResult<Option<Self>> {
        let py = values.py();
        let Some(torch) = Torch::loaded(py)? else { return Ok(None) };
        let _quiet = Quiet::new(py)?;
        let (mut places, mut tensors, mut wants_gradient) = (Vec::new(), Vec::new(), false);
        for (place, value) in values.iter_borrowed().enumerate() {
            if torch.is_plain(&value) || value.is_instance(torch.tensor(py))? {
                wants_gradient = wants_gradient || value.getattr(intern!(py, "requires_grad"))?.is_truthy()?;
                places.push(place);
                tensors.push(value.to_owned());
            }
        }
        if !wants_gradient {
            return Ok(None);
        }
        let functions = Functions::get(py)?;
        let passed = functions.apply(py, tensors)?;
        let Some(node) = first_node(&passed)? else { return Ok(None) };
        let mut all: Vec<_> = values.iter().collect();
        for (&place, tensor) in places.iter().zip(passed.iter_borrowed()) {
            // Without this, torch refuses in-place writes to the result.
            functions.set_creation_meta.bind(py).call1((&tensor, &functions.default_meta))?;
            all[place] = tensor.to_owned();
        }
        let spread = Spread { places, count: all.len() };
        Ok(Some(Self { values: PyTuple::new(py, all)?, spread, node }))
    }
}

fn first_node<'py>(passed: &Bound<'py, PyTuple>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = passed.py();
    for tensor in passed.iter_borrowed() {
        let node = tensor.getattr(intern!(py, "grad_fn"))?;
        if !node.is_none() && node.call_method0(intern!(py, "name"))?.eq(intern!(py, NODE))? {
            return Ok(Some(node));
        }
    }
    Ok(None)
}

/// Returns a tuple of the same type as `like`, which may be a named tuple.
fn of_type<'py>(like: &Bound<'py, PyTuple>, values: Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    if like.is_exact_instance_of::<PyTuple>() {
        return Ok(values.into_any());
    }
    let class = like.get_type();
    match class.getattr_opt(intern!(like.py(), "_make"))? {
        Some(make) => make.call1((values,)),
        None => class.call1((values,)),
    }
}

/// The required functions of torch, looked up once.
struct Functions {
    /// `BackwardHookFunction.apply`, the public function.
    apply: Py<PyAny>,
    /// The function that `apply` calls if no functorch transform is active: a third cheaper.
    apply_directly: Py<PyAny>,
    has_transforms: Py<PyAny>,
    unwrap_if_dead: Py<PyAny>,
    set_creation_meta: Py<PyAny>,
    default_meta: Py<PyAny>,
}

impl Functions {
    fn get(py: Python<'_>) -> PyResult<&'static Self> {
        static FUNCTIONS: PyOnceLock<Functions> = PyOnceLock::new();
        FUNCTIONS.get_or_try_init(py, || {
            let internals = py.import("torch._C")?;
            let function = py.import("torch.nn.modules._functions")?.getattr("BackwardHookFunction")?;
            let base = py.import("torch.autograd")?.getattr("Function")?;
            let above = py.import("builtins")?.getattr("super")?.call1((base, &function))?;
            let autograd = internals.getattr("_autograd")?;
            Ok(Self {
                apply: function.getattr("apply")?.unbind(),
                apply_directly: above.getattr("apply")?.unbind(),
                has_transforms: internals.getattr("_are_functorch_transforms_active")?.unbind(),
                unwrap_if_dead: internals.getattr("_functorch")?.getattr("unwrap_if_dead")?.unbind(),
                set_creation_meta: autograd.getattr("_set_creation_meta")?.unbind(),
                default_meta: autograd.getattr("CreationMeta")?.getattr("DEFAULT")?.unbind(),
            })
        })
    }

    /// Passes the tensors through one node.
    fn apply<'py>(&self, py: Python<'py>, mut tensors: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyTuple>> {
        let mut apply = &self.apply;
        if !self.has_transforms.bind(py).call0()?.is_truthy()? {
            apply = &self.apply_directly;
            let unwrap = self.unwrap_if_dead.bind(py);
            tensors = tensors.into_iter().map(|tensor| unwrap.call1((tensor,))).collect::<PyResult<_>>()?;
        }
        let passed = apply.bind(py).call1(PyTuple::new(py, tensors)?)?;
        Ok(passed.cast_into::<PyTuple>()?)
    }
}
