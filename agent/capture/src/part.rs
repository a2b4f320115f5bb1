//! The parts of an entry.

use std::borrow::Cow;

use trainmon_capture_files::part;

/// A part of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'p> {
    /// A call's positional arguments: a list.
    InputArgs,
    /// A call's keyword arguments: an object.
    InputKwargs,
    /// The outputs of a call or of its backward: a list.
    Output,
    /// A module's own parameters: an object.
    Parameters,
    /// The gradients of the outputs, which a backward takes: a list.
    Input,
    /// The gradient of the parameter with this name: one tensor.
    Gradient(&'p str),
    /// A value that a script saved, of any type.
    Saved,
    /// A note about the call: a text.
    Note,
}

impl Part<'_> {
    /// The key in the entry; empty for a saved value, which is the entry itself.
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

    /// The part's name in file names.
    pub(crate) fn category(&self) -> Cow<'static, str> {
        match self {
            Self::InputArgs | Self::Input => Cow::Borrowed(part::INPUT),
            Self::InputKwargs => Cow::Borrowed("kwargs"),
            other => other.key(),
        }
    }
}
