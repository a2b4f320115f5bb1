//! The parts an entry is made of.

use std::borrow::Cow;

use trainmon_capture_files::part;

/// One of an entry's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'p> {
    /// A call's positional arguments: a list.
    InputArgs,
    /// Its keyword arguments: an object.
    InputKwargs,
    /// What came out, of a call or of its backward: a list.
    Output,
    /// A module's own parameters: an object.
    Parameters,
    /// A backward's gradients of what came out: a list.
    Input,
    /// The gradient of a parameter of this name: one tensor.
    Gradient(&'p str),
    /// A value a script saved: any.
    Saved,
    /// What there is to say of the call: a text.
    Note,
}

impl Part<'_> {
    /// The key in the entry; of a saved value, which is the entry itself, none.
    pub(crate) fn key(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::InputArgs => part::INPUT_ARGS,
            Self::InputKwargs => part::INPUT_KWARGS,
            Self::Input => part::INPUT,
            Self::Output => part::OUTPUT,
            Self::Parameters => part::PARAMETERS,
            Self::Gradient(parameter) => return Cow::Owned((*parameter).to_owned()),
            Self::Saved => "",
            Self::Note => part::NOTE,
        })
    }

    /// What stands for it in the names of files.
    pub(crate) fn category(&self) -> Cow<'static, str> {
        match self {
            Self::InputArgs | Self::Input => Cow::Borrowed(part::INPUT),
            Self::InputKwargs => Cow::Borrowed("kwargs"),
            other => other.key(),
        }
    }
}
