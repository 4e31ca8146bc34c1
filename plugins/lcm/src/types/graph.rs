//! Which types hold which: in what order they can be looked at so that what a type holds comes before it.

use super::{Library, TypeId};

/// The types of a library in groups: types that hold each other, in any number of steps, are one group;
/// what a group holds beside itself comes before it.
pub(crate) struct Groups {
    groups: Vec<Vec<TypeId>>,
    group_of: Vec<usize>,
}

impl Groups {
    /// Tarjan's algorithm, with a stack of its own: types may nest as deeply as they like.
    pub(crate) fn of(library: &Library) -> Self {
        let len = library.ids().count();
        let mut walk = Walk {
            library,
            number: vec![UNSEEN; len],
            low: vec![0; len],
            waiting: Vec::new(),
            is_waiting: vec![false; len],
            next: 0,
            groups: Vec::new(),
            group_of: vec![0; len],
        };
        for id in library.ids() {
            if walk.number[id.index()] == UNSEEN {
                walk.from(id);
            }
        }
        Self { groups: walk.groups, group_of: walk.group_of }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[TypeId]> {
        self.groups.iter().map(Vec::as_slice)
    }

    /// Whether two types are of one group.
    pub(crate) fn are_together(&self, a: TypeId, b: TypeId) -> bool {
        self.group_of[a.index()] == self.group_of[b.index()]
    }
}

const UNSEEN: usize = usize::MAX;

struct Walk<'l> {
    library: &'l Library,
    number: Vec<usize>,
    low: Vec<usize>,
    waiting: Vec<TypeId>,
    is_waiting: Vec<bool>,
    next: usize,
    groups: Vec<Vec<TypeId>>,
    group_of: Vec<usize>,
}

impl Walk<'_> {
    fn from(&mut self, root: TypeId) {
        // A type and how many of its members have been looked at.
        let mut path = vec![(root, 0)];
        self.enter(root);
        while let Some((id, member)) = path.last_mut() {
            let (id, at) = (*id, *member);
            *member += 1;
            let Some(used) = self.library.get(id).uses.get(at) else {
                path.pop();
                self.leave(id, path.last().map(|(before, _)| *before));
                continue;
            };
            let Some(used) = *used else { continue };
            if self.number[used.index()] == UNSEEN {
                self.enter(used);
                path.push((used, 0));
            } else if self.is_waiting[used.index()] {
                self.low[id.index()] = self.low[id.index()].min(self.number[used.index()]);
            }
        }
    }

    fn enter(&mut self, id: TypeId) {
        self.number[id.index()] = self.next;
        self.low[id.index()] = self.next;
        self.next += 1;
        self.waiting.push(id);
        self.is_waiting[id.index()] = true;
    }

    fn leave(&mut self, id: TypeId, before: Option<TypeId>) {
        let low = self.low[id.index()];
        if let Some(before) = before {
            self.low[before.index()] = self.low[before.index()].min(low);
        }
        if low != self.number[id.index()] {
            return;
        }
        let mut group = Vec::new();
        while let Some(member) = self.waiting.pop() {
            self.is_waiting[member.index()] = false;
            self.group_of[member.index()] = self.groups.len();
            group.push(member);
            if member == id {
                break;
            }
        }
        self.groups.push(group);
    }
}
