//! Lists of small ids in the order they were last touched.
//!
//! Several lists share one set of links, so an id is in at most one of them.

const NONE: u32 = u32::MAX;

/// The neighbours of every id.
#[derive(Debug, Default)]
pub(super) struct LruLinks(Vec<Neighbours>);

#[derive(Clone, Copy, Debug)]
struct Neighbours {
    older: u32,
    newer: u32,
}

/// Both ends of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LruList {
    oldest: u32,
    newest: u32,
}

impl Default for LruList {
    fn default() -> Self {
        Self { oldest: NONE, newest: NONE }
    }
}

impl LruList {
    /// The id not touched for the longest time.
    pub(super) fn oldest(self) -> Option<u32> {
        Some(self.oldest).filter(|id| *id != NONE)
    }
}

impl LruLinks {
    /// Appends an id that is in no list.
    pub(super) fn push(&mut self, list: &mut LruList, id: u32) {
        let at = id as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, Neighbours { older: NONE, newer: NONE });
        }
        self.0[at] = Neighbours { older: list.newest, newer: NONE };
        match self.0.get_mut(list.newest as usize) {
            Some(before) => before.newer = id,
            None => list.oldest = id,
        }
        list.newest = id;
    }

    /// Removes an id from the list it is in.
    pub(super) fn remove(&mut self, list: &mut LruList, id: u32) {
        let Neighbours { older, newer } = self.0[id as usize];
        match self.0.get_mut(older as usize) {
            Some(before) => before.newer = newer,
            None => list.oldest = newer,
        }
        match self.0.get_mut(newer as usize) {
            Some(after) => after.older = older,
            None => list.newest = older,
        }
    }

    /// Moves an id of this list to the newest end.
    #[inline]
    pub(super) fn touch(&mut self, list: &mut LruList, id: u32) {
        if list.newest != id {
            self.remove(list, id);
            self.push(list, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(links: &LruLinks, list: LruList) -> Vec<u32> {
        let after = |id: &u32| Some(links.0[*id as usize].newer).filter(|id| *id != NONE);
        std::iter::successors(list.oldest(), after).collect()
    }

    #[test]
    fn a_list_goes_from_the_longest_untouched_to_the_last_touched() {
        let (mut links, mut list) = (LruLinks::default(), LruList::default());
        (0..4).for_each(|id| links.push(&mut list, id));
        links.touch(&mut list, 0);
        links.touch(&mut list, 2);
        assert_eq!(numbers(&links, list), [1, 3, 0, 2]);
        links.touch(&mut list, 2);
        links.remove(&mut list, 1);
        links.remove(&mut list, 0);
        assert_eq!(numbers(&links, list), [3, 2]);
        links.remove(&mut list, 2);
        links.remove(&mut list, 3);
        assert_eq!(list, LruList::default());
    }

    #[test]
    fn lists_of_one_kind_do_not_disturb_each_other() {
        let (mut links, mut even, mut odd) =
            (LruLinks::default(), LruList::default(), LruList::default());
        for id in 0..6 {
            links.push(if id % 2 == 0 { &mut even } else { &mut odd }, id);
        }
        links.remove(&mut even, 2);
        links.push(&mut odd, 2);
        assert_eq!(numbers(&links, even), [0, 4]);
        assert_eq!(numbers(&links, odd), [1, 3, 5, 2]);
    }
}
