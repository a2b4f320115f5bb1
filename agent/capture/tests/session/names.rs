//! Which calls are captured, what they are called, and where they hang.

use trainmon_capture::{Direction, Part};

use crate::support::{Host, names};

/// Module a with a linear, its relu; then a function outside; all named as msprobe names them.
fn run(host: &Host) {
    let session = &host.session;
    let module = |name: &str, inside: &dyn Fn()| {
        let call = session.begin_module_call(name).forward;
        let is_wanted = session.begin_module(&call, Direction::Forward);
        if is_wanted {
            let mut entry = session.entry(&call);
            // Its own parent: what is open around it.
            entry.under(None);
            entry.part(Part::InputArgs).begin_list();
            entry.append();
        }
        inside();
        session.end_module(&call);
        if is_wanted {
            let mut entry = session.entry(&call);
            entry.move_to_end();
            if entry.wants(Part::Output) {
                entry.part(Part::Output).begin_list();
            }
            entry.append();
        }
    };
    module("Module.a.A", &|| {
        host.call("linear", |_| (), |_| ());
        module("Module.a.b.B", &|| {
            host.call("relu", |_| (), |_| ());
        });
        host.call("reshape", |_| (), |_| ());
    });
    host.call("relu", |_| (), |_| ());
}

fn captured(keys: &str) -> Vec<String> {
    let host = Host::new(keys);
    run(&host);
    names(&host.document()).into_iter().map(str::to_owned).collect()
}

const LINEAR: &str = "Functional.linear.0.forward";
const RELU: &str = "Functional.relu.0.forward";
const RESHAPE: &str = "Functional.reshape.0.forward";
const OUTER_RELU: &str = "Functional.relu.1.forward";
const A: &str = "Module.a.A.forward.0";
const B: &str = "Module.a.b.B.forward.0";

#[test]
fn a_scope_is_closed_its_last_entry_is_there_with_all_that_runs_in_it() {
    let scope = |first: &str, last: &str| {
        captured(&format!(r#""task": "statistics", "level": "mix", "statistics": {{"scope": ["{first}", "{last}"]}}"#))
    };
    assert_eq!(scope(LINEAR, RELU), [LINEAR, RELU, B], "what began in it is there whole");
    assert_eq!(scope(LINEAR, B), [LINEAR, RELU, B], "the module's own function and its output");
    assert_eq!(scope(B, OUTER_RELU), [RELU, B, RESHAPE, OUTER_RELU]);
    assert_eq!(scope(A, A), [LINEAR, RELU, B, RESHAPE, A]);
    assert_eq!(scope("Functional.never.0.forward", RELU), [""; 0]);
}

#[test]
fn a_list_opens_modules_in_mix_and_matches_names_elsewhere() {
    let list = |level: &str, text: &str| {
        captured(&format!(r#""task": "statistics", "level": "{level}", "statistics": {{"list": ["{text}"]}}"#))
    };
    assert_eq!(list("mix", "Module.a.b"), [RELU, B]);
    assert_eq!(list("mix", "relu"), [RELU, OUTER_RELU]);
    assert_eq!(list("L1", "relu"), [RELU, OUTER_RELU]);
}

#[test]
fn without_scope_and_list_the_order_is_msprobes() {
    let expected = [LINEAR, RELU, B, RESHAPE, A, OUTER_RELU];
    assert_eq!(captured(r#""task": "statistics", "level": "mix""#), expected);
    let host = Host::new(r#""task": "statistics", "level": "mix""#);
    assert!(host.session.plan().wants_function("Functional", "relu"));
    assert!(!host.session.plan().wants_function("Tensor", "reshape"), "it only moves elements");
    let host = Host::new(r#""task": "statistics", "level": "mix", "statistics": {"list": ["x"]}"#);
    assert!(host.session.plan().wants_function("Tensor", "reshape"), "a list chooses by itself");
}

#[test]
fn halves_that_are_not_asked_for_are_not_there() {
    let host = Host::new(r#""task": "statistics", "statistics": {"data_mode": ["forward", "input"]}"#);
    run(&host);
    assert!(host.session.begin("X.0.forward", Direction::Forward));
    assert!(!host.session.begin("X.0.backward", Direction::Backward));
    assert!(!host.session.entry("X").wants(Part::Parameters) && host.session.entry("X").wants(Part::InputKwargs));
    assert!(!host.text("dump.json").contains("output"));
}

#[test]
fn counts_are_by_function_and_module_and_name() {
    let host = Host::new(r#""task": "statistics""#);
    let session = &host.session;
    let calls = [("Torch", "norm"), ("Torch", "norm"), ("Tensor", "norm")];
    let named = calls.map(|(prefix, api)| session.begin_call(prefix, api).forward);
    assert_eq!(named, ["Torch.norm.0.forward", "Torch.norm.1.forward", "Tensor.norm.0.forward"]);
    assert_eq!(session.begin_call("Aten", "add.Tensor").backward, "Aten.add.Tensor.0.backward");
    assert_eq!(session.begin_module_call("Module.a.A").backward, "Module.a.A.backward.0");
    assert_eq!(session.begin_module_call("Module.a.A").forward, "Module.a.A.forward.1");
    assert_eq!(
        [0, 1].map(|_| session.begin_gradients("Module.a.A")),
        ["Module.a.A.parameters_grad.0", "Module.a.A.parameters_grad.1"]
    );
    let like_a_gradient = session.begin_saved("z_grad", false);
    let other = session.begin_saved("z", true);
    assert_eq!((&*like_a_gradient.forward, &*other.backward), ("z_grad.0.debug", "z_grad.1.debug"));
    let saved = session.begin_saved("y", true);
    assert_eq!((saved.forward.as_str(), saved.backward.as_str()), ("y.0.debug", "y_grad.0.debug"));
}

#[test]
fn a_module_that_raised_is_left_when_the_one_around_it_ends() {
    let host = Host::new(r#""task": "statistics", "level": "mix""#);
    let session = &host.session;
    for name in ["Module.a.A.forward.0", "Module.a.b.B.forward.0", "Module.a.b.c.C.forward.0"] {
        session.begin_module(name, Direction::Forward);
    }
    assert_eq!(session.open_module().as_deref(), Some("Module.a.b.c.C.forward.0"));
    session.end_module("Module.a.b.B.forward.0");
    assert_eq!(session.open_module().as_deref(), Some("Module.a.A.forward.0"));
    std::thread::scope(|threads| {
        threads.spawn(|| assert_eq!(session.open_module(), None, "modules are open on the thread that runs them"));
    });
}

#[test]
fn gradients_of_parameters_follow_their_modules_backward() {
    let keys = r#""task": "statistics", "level": "mix", "statistics": {"scope": ["Module.a.A.backward.0", "Module.a.A.backward.0"]}"#;
    let host = Host::new(keys);
    let session = &host.session;
    assert!(!session.wants_gradients("Module.a.A"));
    assert!(session.begin_module("Module.a.A.backward.0", Direction::Backward));
    session.end_module("Module.a.A.backward.0");
    assert!(session.wants_gradients("Module.a.A") && !session.wants_gradients("Module.b.B"));
    let mut entry = session.entry(&session.begin_gradients("Module.a.A"));
    for parameter in ["bias", "weight"] {
        crate::support::floats(entry.part(Part::Gradient(parameter)), &[1.0]);
    }
    entry.append();
    let text = host.text("dump.json");
    assert!(
        text.contains("\"Module.a.A.parameters_grad.0\":{\"bias\":[{\"type\"") && text.contains("],\"weight\":[{"),
        "{text}"
    );
}

#[test]
fn micro_steps_and_stacks_are_beside() {
    let host = Host::new(r#""task": "structure""#);
    let session = &host.session;
    session.micro_step(Some(2));
    session.begin_module("Module.a.A.forward.0", Direction::Forward);
    let mut entry = session.entry("Functional.relu.0.forward");
    entry.inside_open_module();
    entry.stack(session.stack(&["File a.py, line 1, in f, \n x"]));
    entry.append();
    let mut entry = session.entry("Functional.relu.1.forward");
    entry.under(Some("optimizer"));
    entry.stack(session.stack(&["File a.py, line 1, in f, \n x"]));
    entry.append();
    assert_eq!(
        host.text("construct.json"),
        "{\"Functional.relu.0.forward\":[\"Module.a.A.forward.0\",2],\"Functional.relu.1.forward\":[\"optimizer\",2],\"megatron_micro_step_number\":2}\n"
    );
    assert_eq!(
        host.text("stack.json"),
        "{\n\"0\":[[\"Functional.relu.0.forward\",\"Functional.relu.1.forward\"],[\"File a.py, line 1, in f, \\n x\"]]\n}\n"
    );
    assert!(host.text("dump.json").contains("\"task\":\"structure\",\"level\":\"mix\""));
    assert_eq!(names(&host.document()), [""; 0], "a structure has no values");
}

#[test]
fn errors_are_noted_once_for_each_kind() {
    let host = Host::new(r#""task": "statistics""#);
    for _ in 0..3 {
        host.session.note_error("TypeError", "no such tensor", &["frame 1".to_owned(), "frame 2".to_owned()]);
    }
    host.session.note_error("ValueError", "another", &[]);
    let log = std::fs::read_to_string(host.directory.join("dump_error_info.log")).unwrap();
    assert_eq!(log.matches("TypeError: no such tensor").count(), 1, "{log}");
    assert!(log.contains("\nCall stack (most recent call last):\nframe 1\nframe 2\n\n["), "{log}");
    assert!(log.starts_with('[') && log.contains("] ValueError: another\n"), "{log}");
}
