//! Lists of decoded rows: all elements, and the range of each row. Copies no element.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::ArrowNativeType;
use arrow_schema::DataType;

/// The lists of an array, one per row.
#[derive(Clone, Debug)]
pub struct ListColumn {
    /// The elements of all lists, possibly among others.
    pub elements: ArrayRef,
    /// The range of each row's elements; empty for a null list.
    pub ranges: Vec<Range<usize>>,
}

impl ListColumn {
    /// The lists of an array of any list type; `None` for other types.
    pub fn from_array(array: &ArrayRef) -> Option<Self> {
        let (mut ranges, elements) = match array.data_type() {
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                (ranges(list.value_offsets()), list.values())
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                (ranges(list.value_offsets()), list.values())
            }
            DataType::FixedSizeList(_, len) => {
                let (list, len) = (array.as_fixed_size_list(), len.as_usize());
                let ranges = (0..list.len()).map(|row| row * len..(row + 1) * len).collect();
                (ranges, list.values())
            }
            _ => return None,
        };
        if let Some(nulls) = array.nulls() {
            let of_nulls = ranges.iter_mut().zip(nulls).filter(|(_, is_valid)| !is_valid);
            of_nulls.for_each(|(range, _)| range.end = range.start);
        }
        Some(Self { elements: Arc::clone(elements), ranges })
    }

    /// Restricts each list to the elements with these indices.
    pub fn clip(&mut self, numbers: &Range<usize>) {
        for range in &mut self.ranges {
            let at = |number: usize| range.start.saturating_add(number).min(range.end);
            *range = at(numbers.start)..at(numbers.end);
        }
    }
}

fn ranges<O: ArrowNativeType>(offsets: &[O]) -> Vec<Range<usize>> {
    offsets.windows(2).map(|pair| pair[0].as_usize()..pair[1].as_usize()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::types::Int32Type;
    use arrow_array::{FixedSizeListArray, Int32Array, LargeListArray, ListArray};

    const LISTS: [Option<[Option<i32>; 2]>; 3] = [Some([Some(1), Some(2)]), None, Some([None; 2])];

    fn of_every_kind() -> [ArrayRef; 3] {
        [
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(LISTS)),
            Arc::new(LargeListArray::from_iter_primitive::<Int32Type, _, _>(LISTS)),
            Arc::new(FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(LISTS, 2)),
        ]
    }

    #[test]
    fn lists_of_every_kind_have_their_elements() {
        for array in of_every_kind() {
            for start in 0..3 {
                let lists = ListColumn::from_array(&array.slice(start, 3 - start)).unwrap();
                let lens: Vec<usize> = lists.ranges.iter().map(Range::len).collect();
                assert_eq!(lens, [2, 0, 2][start..]);
                let last = lists.elements.slice(lists.ranges[2 - start].start, 2);
                assert_eq!(last.null_count(), 2, "{}", array.data_type());
            }
        }
        assert!(
            ListColumn::from_array(&(Arc::new(Int32Array::from(vec![1])) as ArrayRef)).is_none()
        );
    }

    #[test]
    fn clipped_lists_have_the_elements_with_these_numbers() {
        for (numbers, wanted) in [(0..1, [1, 0, 1]), (1..9, [1, 0, 1]), (2..9, [0; 3])] {
            let mut lists = ListColumn::from_array(&of_every_kind()[0]).unwrap();
            lists.clip(&numbers);
            assert_eq!(lists.ranges.iter().map(Range::len).collect::<Vec<_>>(), wanted);
        }
    }
}
