//! Values joined from several, because the other side has them fused, and the files to read them from.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use half::{bf16, f16};
use trainmon_capture_files::Parent;
use trainmon_core::{Dtype, Shape};
use trainmon_tensor_files::{FileBytes, StoredTensor};

use super::item::Item;
use super::name::OperatorName;

/// The joined operators of a capture, and their effect on the numbers of other calls.
#[derive(Debug, Default)]
pub struct Joined {
    operators: HashMap<Box<str>, JoinedOperator>,
    /// By callee: the numbers of calls that were joined into others.
    gone: HashMap<Box<str>, BTreeSet<u32>>,
}

/// A joined operator.
#[derive(Debug)]
pub struct JoinedOperator {
    /// The module of the other side's operator.
    pub parent: Option<Parent>,
    /// The order of the parts in the fused tensors.
    pub layout: Layout,
    /// How to read its tensors, by place, if they have files.
    pub recipes: HashMap<Arc<str>, Recipe>,
}

/// The order of parts along the axis on which they are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Groups that each have a share of every part: `[q k v] [q k v] …`. One group means one part after another.
    Groups(u64),
    /// Any other order.
    Unknown,
}

impl Layout {
    /// One part after another.
    pub const PLAIN: Self = Self::Groups(1);
}

/// The files of a joined tensor and how to join them.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Files inside `dump_tensor_data`, in the order of the parts.
    pub files: Vec<Box<str>>,
    /// The operation.
    pub join: Join,
}

/// How several tensors become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Concatenated along an axis.
    Along(usize),
    /// Added element by element.
    Sum,
}

impl Joined {
    /// Whether nothing was joined.
    pub fn is_empty(&self) -> bool {
        self.operators.is_empty()
    }

    /// A joined operator by name; `None` for all others.
    pub fn operator(&self, name: &str) -> Option<&JoinedOperator> {
        self.operators.get(name)
    }

    /// Adds a joined operator; `gone` are the calls that became part of it, without the operator itself.
    pub(crate) fn add<'n>(
        &mut self,
        name: &str,
        operator: JoinedOperator,
        gone: impl IntoIterator<Item = OperatorName<'n>>,
    ) {
        self.operators.insert(name.into(), operator);
        for name in gone.into_iter().filter(|name| name.is_operator) {
            self.gone.entry(name.callee.into()).or_default().insert(name.call);
        }
    }

    /// The number of a call, not counting those that were joined into others.
    pub(crate) fn number(&self, name: OperatorName<'_>) -> u32 {
        let before = self.gone.get(name.callee).map_or(0, |gone| gone.range(..name.call).count());
        name.call - before as u32
    }

    /// How to read a value, if it was joined.
    pub(crate) fn recipe(&self, item: Item<'_>) -> Option<(&Recipe, Layout)> {
        let operator = self.operators.get(&item.operator.name)?;
        operator.recipes.get(&item.value.place).map(|recipe| (recipe, operator.layout))
    }
}

impl Recipe {
    /// Makes the joined tensor; `read` reads one file. Uses memory for the result; mapped parts use none.
    ///
    /// # Errors
    /// The reason why it cannot be made, as a text.
    pub(crate) fn make(
        &self,
        layout: Layout,
        mut read: impl FnMut(&str) -> Result<StoredTensor, String>,
    ) -> Result<StoredTensor, String> {
        if let [file] = &self.files[..] {
            return read(file);
        }
        let groups = match (self.join, layout) {
            (Join::Along(_), Layout::Groups(groups)) => groups,
            (Join::Along(_), Layout::Unknown) => {
                return Err(
                    "the parts of the fused weight are neither one after another nor by groups, so elements cannot be \
                            compared"
                        .to_owned(),
                );
            }
            (Join::Sum, _) => 1,
        };
        let parts: Vec<StoredTensor> = self.files.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
        let made = match self.join {
            Join::Along(axis) => concatenated(&parts, axis, groups as usize),
            Join::Sum => sum(&parts),
        };
        made.ok_or_else(|| {
            let parts: Vec<String> = parts.iter().map(|part| format!("{} {}", part.dtype(), part.shape())).collect();
            format!("its parts do not form one tensor: {}", parts.join(", "))
        })
    }
}

/// Concatenates parts group by group; `None` if their dtypes or other sizes differ, or are not divisible by the groups.
fn concatenated(parts: &[StoredTensor], axis: usize, groups: usize) -> Option<StoredTensor> {
    let (first, dtype) = (parts.first()?.shape(), parts.first()?.dtype());
    let mut dims = first.dims().to_vec();
    *dims.get_mut(axis)? = 0;
    let outer = first.dims()[..axis].iter().product::<i64>() as usize;
    let inner = first.dims()[axis + 1..].iter().product::<i64>() as usize * dtype.size();
    let mut runs = Vec::with_capacity(parts.len());
    for part in parts {
        let shape = part.shape();
        let sizes = shape.dims();
        let is_alike = part.dtype() == dtype
            && sizes.len() == dims.len()
            && (0..sizes.len()).all(|at| at == axis || sizes[at] == dims[at]);
        if !is_alike || !(sizes[axis] as usize).is_multiple_of(groups) {
            return None;
        }
        dims[axis] += sizes[axis];
        runs.push(sizes[axis] as usize / groups * inner);
    }
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.bytes().len()).sum());
    // All groups of all outer rows lie one after another in every part.
    for group in 0..outer * groups {
        for (part, run) in parts.iter().zip(&runs) {
            bytes.extend_from_slice(&part.bytes()[group * run..(group + 1) * run]);
        }
    }
    StoredTensor::new(dtype, Shape::new(&dims).ok()?, FileBytes::from(bytes)).ok()
}

/// Adds the parts, rounded once to their dtype; `None` if shapes or dtypes differ, or for integers and complex numbers.
fn sum(parts: &[StoredTensor]) -> Option<StoredTensor> {
    const CHUNK: usize = 2048;
    let (shape, dtype) = (parts.first()?.shape(), parts.first()?.dtype());
    let is_alike = |part: &StoredTensor| part.dtype() == dtype && part.shape() == shape;
    if !parts.iter().all(is_alike) {
        return None;
    }
    let mut bytes = Vec::with_capacity(parts.first()?.bytes().len());
    let (mut total, mut numbers) = ([0.0; CHUNK], [0.0; CHUNK]);
    for from in (0..shape.elements()).step_by(CHUNK) {
        let length = CHUNK.min(shape.elements() - from);
        total.fill(0.0);
        for part in parts {
            part.read_f64(from, &mut numbers[..length]);
            total.iter_mut().zip(&numbers[..length]).for_each(|(total, number)| *total += number);
        }
        let total = &total[..length];
        match dtype {
            Dtype::F64 => bytes.extend(total.iter().flat_map(|number| number.to_le_bytes())),
            Dtype::F32 => bytes.extend(total.iter().flat_map(|number| (*number as f32).to_le_bytes())),
            Dtype::F16 => bytes.extend(total.iter().flat_map(|number| f16::from_f64(*number).to_le_bytes())),
            Dtype::Bf16 => bytes.extend(total.iter().flat_map(|number| bf16::from_f64(*number).to_le_bytes())),
            _ => return None,
        }
    }
    StoredTensor::new(dtype, shape, FileBytes::from(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dims: &[i64], values: &[f32]) -> StoredTensor {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        StoredTensor::new(Dtype::F32, Shape::new(dims).unwrap(), FileBytes::from(bytes)).unwrap()
    }

    #[test]
    fn parts_lie_side_by_side_on_any_axis_and_by_groups() {
        let q = tensor(&[2, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let k = tensor(&[2, 2], &[10.0, 20.0, 30.0, 40.0]);
        let plain = concatenated(&[q.clone(), k.clone()], 1, 1).unwrap();
        assert_eq!(plain.shape().dims(), [2, 6]);
        assert_eq!(plain.to_f64(), [1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 5.0, 6.0, 7.0, 8.0, 30.0, 40.0]);
        let grouped = concatenated(&[q.clone(), k.clone()], 1, 2).unwrap();
        assert_eq!(grouped.to_f64(), [1.0, 2.0, 10.0, 3.0, 4.0, 20.0, 5.0, 6.0, 30.0, 7.0, 8.0, 40.0]);
        assert!(concatenated(&[q.clone(), k.clone()], 1, 3).is_none());
        assert!(concatenated(&[q.clone(), k.clone()], 0, 1).is_none());
        assert!(concatenated(&[q, k], 2, 1).is_none());
        let (upper, lower) = (tensor(&[1, 2], &[1.0, 2.0]), tensor(&[2, 2], &[3.0, 4.0, 5.0, 6.0]));
        assert_eq!(concatenated(&[upper, lower], 0, 1).unwrap().to_f64(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn a_sum_is_rounded_once_to_the_dtype_of_its_parts() {
        let of = |values: [f64; 2]| {
            let bytes: Vec<u8> = values.iter().flat_map(|value| bf16::from_f64(*value).to_le_bytes()).collect();
            StoredTensor::new(Dtype::Bf16, Shape::new(&[2]).unwrap(), FileBytes::from(bytes)).unwrap()
        };
        // 256 + 1 is 256 in bfloat16, and 256 + 2 is 258.
        let total = sum(&[of([256.0, 1.0]), of([1.0, 2.0]), of([1.0, 4.0])]).unwrap();
        assert_eq!((total.dtype(), total.to_f64()), (Dtype::Bf16, vec![258.0, 7.0]));
        assert!(sum(&[of([1.0, 2.0]), tensor(&[2], &[1.0, 2.0])]).is_none());
    }
}
