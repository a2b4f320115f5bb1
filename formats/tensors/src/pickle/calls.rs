//! Detects calls in a pickle that no file of tensors needs.

use std::path::Path;

use super::value::{Id, Pickled, Value};

/// Modules whose functions start programs, execute code, or access files and the network. In a pickle, `os` is named
/// `posix` or `nt`. Modules whose values occur in training arguments, such as `signal.Signals`, are not included.
const MODULES: [&str; 20] = [
    "asyncio",
    "code",
    "commands",
    "ctypes",
    "ftplib",
    "importlib",
    "marshal",
    "nt",
    "os",
    "pickle",
    "pip",
    "popen2",
    "posix",
    "pty",
    "requests",
    "runpy",
    "shutil",
    "socket",
    "subprocess",
    "webbrowser",
];

/// Builtin functions that execute code or give access to it.
const BUILTINS: [&str; 11] = [
    "__import__",
    "breakpoint",
    "compile",
    "delattr",
    "eval",
    "exec",
    "getattr",
    "globals",
    "input",
    "open",
    "setattr",
];

impl Pickled {
    /// The functions that unpickling would call and no file of tensors needs, such as `posix.system`: each once, in
    /// file order. Nothing here calls them. Empty for files from frameworks.
    ///
    /// The list contains known misuses: an empty result does not make a file safe to unpickle.
    ///
    /// Cost: one look at each value.
    pub fn harmful_calls(&self) -> Vec<String> {
        let mut found = Vec::new();
        for value in &self.values {
            let Value::Object(object) = value else { continue };
            if let Some(name) = self.harmful(object.callable).filter(|name| !found.contains(name)) {
                found.push(name);
            }
        }
        found
    }

    /// A sentence about the [`harmful_calls`](Self::harmful_calls) of the file at `path`; `None` if there are none. It
    /// does not depend on the tensors.
    pub fn harmful_note(&self, path: &Path) -> Option<String> {
        let calls = self.harmful_calls();
        (!calls.is_empty()).then(|| {
            format!(
                "{} contains calls of {}; trainmon did not execute them, but `torch.load` without `weights_only` or \
                 `pickle.load` would",
                path.display(),
                calls.join(", "),
            )
        })
    }

    fn harmful(&self, callable: Id) -> Option<String> {
        let Value::Global(global) = &self.values[callable.0 as usize] else { return None };
        let package = global.module.split('.').next().unwrap_or_default();
        let is_builtin = matches!(package, "builtins" | "__builtin__");
        let is_harmful = MODULES.contains(&package) || (is_builtin && BUILTINS.contains(&&*global.name));
        is_harmful.then(|| format!("{}.{}", global.module, global.name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;

    fn calls(pickle: &[u8]) -> Vec<String> {
        read(pickle).unwrap().0.harmful_calls()
    }

    #[test]
    fn a_call_of_the_system_is_named_once_wherever_it_stands() {
        let call = b"cposix\nsystem\nX\x01\0\0\0x\x85R".as_slice();
        assert_eq!(calls(&[b"\x80\x02", call, b"."].concat()), ["posix.system"]);
        assert_eq!(calls(&[b"\x80\x02}X\x01\0\0\0a(", call, call, b"ls."].concat()), ["posix.system"]);
        assert_eq!(calls(b"\x80\x02c__builtin__\neval\nX\x01\0\0\0x\x85R."), ["__builtin__.eval"]);
    }

    #[test]
    fn what_frameworks_write_is_not_named() {
        assert_eq!(calls(b"\x80\x02ccollections\nOrderedDict\n)R."), [""; 0]);
        assert_eq!(calls(b"\x80\x02cbuiltins\nset\n]\x85R."), [""; 0]);
        // A name that nobody calls.
        assert_eq!(calls(b"\x80\x02cposix\nsystem\n."), [""; 0]);
    }
}
