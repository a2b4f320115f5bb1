//! Executes the opcodes of a pickle.

use std::collections::HashMap;

use super::limits::{MAX_CLASS_NAME, MAX_LONG_BYTES, MAX_NAMES, MAX_OBJECTS};
use super::opcode as op;
use super::value::{Global, Id, Object, Pickled, Value};
use crate::error::{FormatError, part};

/// Values that are equal wherever they occur: they need no memory per occurrence.
const NONE: Id = Id(0);
const TRUE: Id = Id(1);
const FALSE: Id = Id(2);
const EMPTY_TUPLE: Id = Id(3);

pub(super) struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<Value>,
    stack: Vec<Id>,
    /// The stack heights at its marks: values below the last mark are not accessible.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let values = vec![Value::None, Value::Bool(true), Value::Bool(false), Value::Tuple(Box::default())];
        Self { bytes, at: 0, values, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() }
    }

    pub(super) fn run(mut self) -> Result<(Pickled, usize), FormatError> {
        let [op::PROTO, protocol] = self.array()? else {
            return Err(FormatError::unsupported("a pickle of protocol 0 or 1, or another file,", "no protocol byte"));
        };
        if !(2..=5).contains(&protocol) {
            return Err(FormatError::unsupported("a pickle of this protocol", protocol.to_string()));
        }
        loop {
            let [opcode] = self.array()?;
            if opcode == op::STOP {
                let root = self.pop()?;
                return Ok((Pickled { values: self.values, root }, self.at));
            }
            self.step(opcode)?;
            let names = self.stack.len().max(self.marks.len()).max(self.memo.len());
            for (what, found, limit) in [
                ("values in a pickle", self.values.len(), MAX_OBJECTS),
                ("places in a pickle's stack or memo", names, MAX_NAMES),
            ] {
                if found > limit {
                    return Err(FormatError::TooMuch { what, found: found as u64, limit: limit as u64 });
                }
            }
        }
    }

    fn step(&mut self, opcode: u8) -> Result<(), FormatError> {
        match opcode {
            op::MARK => self.marks.push(self.stack.len()),
            op::POP => match self.marks.last() {
                // A mark may be on top.
                Some(&height) if height == self.stack.len() => drop(self.marks.pop()),
                _ => drop(self.pop()?),
            },
            op::POP_MARK => drop(self.pop_to_mark()?),
            op::DUP => self.stack.push(self.top()?),
            op::NONE => self.stack.push(NONE),
            op::NEWTRUE => self.stack.push(TRUE),
            op::NEWFALSE => self.stack.push(FALSE),
            op::BININT..=op::BININT2 | op::LONG1 | op::LONG4 | op::BINFLOAT => return self.number(opcode),
            op::BINSTRING
            | op::SHORT_BINSTRING
            | op::BINUNICODE
            | op::SHORT_BINUNICODE
            | op::BINUNICODE8
            | op::BINBYTES
            | op::SHORT_BINBYTES
            | op::BINBYTES8
            | op::BYTEARRAY8 => return self.text(opcode),
            op::BINGET | op::LONG_BINGET | op::BINPUT | op::LONG_BINPUT | op::MEMOIZE => return self.remember(opcode),
            op::GLOBAL | op::STACK_GLOBAL | op::REDUCE | op::BUILD | op::NEWOBJ | op::NEWOBJ_EX | op::BINPERSID => {
                return self.object(opcode);
            }
            // A frame only contains how much to read ahead.
            op::FRAME => drop(self.array::<8>()?),
            op::PROTO => drop(self.array::<1>()?),
            _ => return self.container(opcode),
        }
        Ok(())
    }

    fn number(&mut self, opcode: u8) -> Result<(), FormatError> {
        let value = match opcode {
            op::BININT => Value::Int(i64::from(i32::from_le_bytes(self.array()?))),
            op::BININT1 => Value::Int(i64::from(u8::from_le_bytes(self.array()?))),
            op::BININT2 => Value::Int(i64::from(u16::from_le_bytes(self.array()?))),
            op::BINFLOAT => Value::Float(f64::from_be_bytes(self.array()?)),
            op::LONG1 | op::LONG4 => {
                let length = if opcode == op::LONG1 { self.length::<1>()? } else { self.length::<4>()? };
                if length > MAX_LONG_BYTES {
                    return Err(FormatError::TooMuch {
                        what: "bytes of a number",
                        found: length,
                        limit: MAX_LONG_BYTES,
                    });
                }
                long(self.take(length)?)
            }
            _ => return Err(self.unknown(opcode)),
        };
        self.push(value);
        Ok(())
    }

    fn text(&mut self, opcode: u8) -> Result<(), FormatError> {
        let length = match opcode {
            op::SHORT_BINSTRING | op::SHORT_BINUNICODE | op::SHORT_BINBYTES => self.length::<1>()?,
            op::BINSTRING | op::BINUNICODE | op::BINBYTES => self.length::<4>()?,
            _ => self.length::<8>()?,
        };
        let at = self.at;
        let bytes = self.take(length)?.to_vec();
        let value = match opcode {
            op::BINBYTES | op::SHORT_BINBYTES | op::BINBYTES8 | op::BYTEARRAY8 => Value::Bytes(bytes.into()),
            // A Python 2 string is both bytes and text.
            op::BINSTRING | op::SHORT_BINSTRING => String::from_utf8(bytes)
                .map_or_else(|error| Value::Bytes(error.into_bytes().into()), |text| Value::Text(text.into())),
            _ => {
                let text = String::from_utf8(bytes);
                Value::Text(text.map_err(|error| FormatError::malformed("a string", at, error.to_string()))?.into())
            }
        };
        self.push(value);
        Ok(())
    }

    fn container(&mut self, opcode: u8) -> Result<(), FormatError> {
        match opcode {
            op::EMPTY_LIST => self.push(Value::List(Vec::new())),
            op::EMPTY_DICT => self.push(Value::Dict(Vec::new())),
            op::EMPTY_SET => self.push(Value::Set(Vec::new())),
            op::EMPTY_TUPLE => self.stack.push(EMPTY_TUPLE),
            op::TUPLE1..=op::TUPLE3 => {
                let ids = self.pop_many(usize::from(opcode - op::TUPLE1) + 1)?;
                self.push(Value::Tuple(ids.into()));
            }
            op::TUPLE => {
                let ids = self.pop_to_mark()?;
                self.push(Value::Tuple(ids.into()));
            }
            op::LIST => {
                let ids = self.pop_to_mark()?;
                self.push(Value::List(ids));
            }
            op::FROZENSET => {
                let ids = self.pop_to_mark()?;
                self.push(Value::Set(ids));
            }
            op::DICT => {
                let ids = self.pop_to_mark()?;
                self.push(Value::Dict(Vec::new()));
                self.add_pairs(&ids)?;
            }
            op::APPEND => {
                let id = self.pop()?;
                self.add_items(&[id])?;
            }
            op::APPENDS | op::ADDITEMS => {
                let ids = self.pop_to_mark()?;
                self.add_items(&ids)?;
            }
            op::SETITEM => {
                let ids = self.pop_many(2)?;
                self.add_pairs(&ids)?;
            }
            op::SETITEMS => {
                let ids = self.pop_to_mark()?;
                self.add_pairs(&ids)?;
            }
            _ => return Err(self.unknown(opcode)),
        }
        Ok(())
    }

    fn remember(&mut self, opcode: u8) -> Result<(), FormatError> {
        match opcode {
            op::BINGET | op::LONG_BINGET => {
                let key = if opcode == op::BINGET { self.length::<1>()? } else { self.length::<4>()? };
                let id = self.memo.get(&(key as u32)).copied();
                let id = id.ok_or_else(|| self.wrong(&format!("the memo has no entry {key}")))?;
                self.stack.push(id);
            }
            op::MEMOIZE => drop(self.memo.insert(self.memo.len() as u32, self.top()?)),
            op::BINPUT | op::LONG_BINPUT => {
                let key = if opcode == op::BINPUT { self.length::<1>()? } else { self.length::<4>()? };
                self.memo.insert(key as u32, self.top()?);
            }
            _ => return Err(self.unknown(opcode)),
        }
        Ok(())
    }

    fn object(&mut self, opcode: u8) -> Result<(), FormatError> {
        match opcode {
            op::GLOBAL => {
                let (module, name) = (self.line()?, self.line()?);
                self.push(Value::Global(Box::new(Global { module, name })));
            }
            op::STACK_GLOBAL => {
                let ids = self.pop_many(2)?;
                let (module, name) = (self.class_name(ids[0])?, self.class_name(ids[1])?);
                self.push(Value::Global(Box::new(Global { module, name })));
            }
            op::REDUCE | op::NEWOBJ => {
                let ids = self.pop_many(2)?;
                self.push_object(ids[0], ids[1]);
            }
            op::NEWOBJ_EX => {
                // Keyword arguments become the state, because nothing else would contain them.
                let ids = self.pop_many(3)?;
                self.push_object(ids[0], ids[1]);
                self.stack.push(ids[2]);
                return self.object(op::BUILD);
            }
            op::BUILD => {
                let state = self.pop()?;
                let id = self.top()?;
                match &mut self.values[id.0 as usize] {
                    Value::Object(object) => object.state = Some(state),
                    _ => return Err(self.wrong("a state for a value without one")),
                }
            }
            op::BINPERSID => {
                let id = self.pop()?;
                self.push(Value::Persistent(id));
            }
            _ => return Err(self.unknown(opcode)),
        }
        Ok(())
    }

    fn push_object(&mut self, callable: Id, args: Id) {
        let object = Object { callable, args, state: None, items: Vec::new(), pairs: Vec::new() };
        self.push(Value::Object(Box::new(object)));
    }

    fn add_items(&mut self, ids: &[Id]) -> Result<(), FormatError> {
        let to = self.top()?;
        match &mut self.values[to.0 as usize] {
            Value::List(items) | Value::Set(items) => items.extend_from_slice(ids),
            Value::Object(object) => object.items.extend_from_slice(ids),
            _ => return Err(self.wrong("elements for a value without any")),
        }
        Ok(())
    }

    fn add_pairs(&mut self, ids: &[Id]) -> Result<(), FormatError> {
        let (new, odd) = ids.as_chunks::<2>();
        let to = self.top()?;
        match &mut self.values[to.0 as usize] {
            _ if !odd.is_empty() => return Err(self.wrong("a key without a value")),
            Value::Dict(pairs) => pairs.extend(new.iter().map(|&[key, value]| (key, value))),
            Value::Object(object) => object.pairs.extend(new.iter().map(|&[key, value]| (key, value))),
            _ => return Err(self.wrong("entries for a value that is not a dict")),
        }
        Ok(())
    }

    fn push(&mut self, value: Value) {
        self.stack.push(Id(self.values.len() as u32));
        self.values.push(value);
    }

    /// The lowest accessible height of the stack.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Id, FormatError> {
        let top = self.stack[self.floor()..].last().copied();
        top.ok_or_else(|| self.wrong("the stack is empty"))
    }

    fn pop(&mut self) -> Result<Id, FormatError> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_many(&mut self, count: usize) -> Result<Vec<Id>, FormatError> {
        let from = self.stack.len().checked_sub(count).filter(|&from| from >= self.floor());
        let from = from.ok_or_else(|| self.wrong("the stack has too few values"))?;
        Ok(self.stack.split_off(from))
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>, FormatError> {
        let mark = self.marks.pop().ok_or_else(|| self.wrong("no mark on the stack"))?;
        Ok(self.stack.split_off(mark))
    }

    /// Reads a line of a `GLOBAL`.
    fn line(&mut self) -> Result<Box<str>, FormatError> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().take(MAX_CLASS_NAME + 1).position(|&byte| byte == b'\n');
        let end = end.ok_or_else(|| self.wrong("the name of a class is not terminated"))?;
        let text = String::from_utf8(rest[..end].to_vec());
        let text = text.map_err(|error| self.wrong(&error.to_string()))?;
        self.at += end + 1;
        Ok(text.into())
    }

    /// The string on the stack that names a class. It is copied, so its length is limited.
    fn class_name(&self, id: Id) -> Result<Box<str>, FormatError> {
        match &self.values[id.0 as usize] {
            Value::Text(text) if text.len() <= MAX_CLASS_NAME => Ok(text.clone()),
            _ => Err(self.wrong("the name of a class is not a string, or is too long")),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let bytes = part(self.bytes, "a pickle", self.at as u64, N as u64)?;
        self.at += N;
        let mut array = [0; N];
        array.copy_from_slice(bytes);
        Ok(array)
    }

    /// Reads an unsigned number of `N` bytes.
    fn length<const N: usize>(&mut self) -> Result<u64, FormatError> {
        let bytes = self.array::<N>()?;
        Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], FormatError> {
        let bytes = part(self.bytes, "a value of a pickle", self.at as u64, length)?;
        self.at += bytes.len();
        Ok(bytes)
    }

    fn wrong(&self, found: &str) -> FormatError {
        FormatError::malformed("a pickle", self.at, found)
    }

    fn unknown(&self, opcode: u8) -> FormatError {
        self.wrong(&format!("unknown opcode {:?}", char::from(opcode)))
    }
}

/// A little-endian two's complement integer of any length.
fn long(bytes: &[u8]) -> Value {
    let is_negative = bytes.last().is_some_and(|&byte| byte & 0x80 != 0);
    if bytes.len() > 8 {
        return Value::Long(bytes.into());
    }
    let mut padded = [if is_negative { 0xff } else { 0 }; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    Value::Int(i64::from_le_bytes(padded))
}
