//! A hash of a few elements of a tensor.

use trainmon_core::TensorView;

/// The number of sampled elements.
const SAMPLES: usize = 64;

/// The fewest nonzero elements of a usable sample: scaling does not change zeros, and the gradient of a large embedding
/// is nearly all zeros.
const ENOUGH_NONZERO: u32 = 8;

/// Returns a hash of sizes, strides and up to 64 elements spread over the tensor. `None` if too few are nonzero.
/// Cost: about 64 reads, well below a microsecond.
pub fn sample(view: &TensorView<'_>) -> Option<u64> {
    let elements = view.elements();
    let is_contiguous = view.is_contiguous();
    let places = elements.min(SAMPLES);
    let mut hash = elements as u64;
    for (&size, &stride) in view.shape().dims().iter().zip(view.strides()) {
        hash = mix(mix(hash, size as u64), stride as u64);
    }
    let mut nonzero = 0;
    for sample in 0..places {
        let place = if elements <= SAMPLES { sample } else { spread(sample, elements) };
        let word = element_bits(view, if is_contiguous { place } else { offset_of(view, place) });
        nonzero += u32::from(word != 0);
        hash = mix(hash, word);
    }
    (elements <= SAMPLES || nonzero >= ENOUGH_NONZERO).then_some(hash)
}

fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

/// Returns the position of a sample: multiples of the golden ratio are spread evenly, independent of rows and columns.
fn spread(sample: usize, elements: usize) -> usize {
    let fraction = (sample as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((u128::from(fraction) * elements as u128) >> 64) as usize
}

/// Returns the memory offset, in elements, of a logical position.
fn offset_of(view: &TensorView<'_>, place: usize) -> usize {
    let mut rest = place;
    let mut offset = 0;
    for (&size, &stride) in view.shape().dims().iter().zip(view.strides()).rev() {
        offset += (rest % size as usize) * stride as usize;
        rest /= size as usize;
    }
    offset
}

/// Returns the bits of the element at an offset; wide types are folded to 64 bits.
#[expect(unsafe_code, reason = "single elements of a view")]
fn element_bits(view: &TensorView<'_>, offset: usize) -> u64 {
    let size = view.dtype().size();
    let mut bytes = [0u8; 16];
    // SAFETY: the offset is that of an element of the view, which is readable by the view's contract; no element is wider
    // than 16 bytes.
    unsafe { std::ptr::copy_nonoverlapping(view.data().add(offset * size), bytes.as_mut_ptr(), size) };
    let bits = u128::from_le_bytes(bytes);
    bits as u64 ^ ((bits >> 64) as u64).rotate_left(32)
}

#[cfg(test)]
mod tests {
    use trainmon_core::Dtype;

    use super::*;

    fn of(numbers: &[f32], dims: &[i64]) -> Option<u64> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        sample(&TensorView::from_bytes(Dtype::F32, dims, &bytes).unwrap())
    }

    #[test]
    fn scaling_and_another_shape_show_and_zeros_say_nothing() {
        let numbers: Vec<f32> = (0..4096_u16).map(f32::from).collect();
        let scaled: Vec<f32> = numbers.iter().map(|number| number * 0.5).collect();
        assert_eq!(of(&numbers, &[4096]), of(&numbers, &[4096]));
        assert_ne!(of(&numbers, &[4096]), of(&scaled, &[4096]));
        assert_ne!(of(&numbers, &[64, 64]), of(&numbers, &[32, 128]));
        assert_eq!(of(&[0.0; 4096], &[4096]), None);
        assert!(of(&[0.0; 4], &[4]).is_some(), "all of a small one is looked at");
    }
}
