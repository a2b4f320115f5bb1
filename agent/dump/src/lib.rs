//! What a run leaves for afterwards: the [`journal`] of its last steps, readable whatever ended the process; [`capture`]s of what
//! single steps' operators took in and gave out; and files of tensors ([`tensor_file`]), read without trusting them.

pub mod capture;
pub mod journal;
pub mod tensor_file;
