//! The strongly connected components of the graph of types, in dependency order.

use sluice_kit::type_library::{TypeId, TypeLibrary};

use super::syntax::Declaration;

/// Most types that may contain each other.
pub(super) const MAX_COMPONENT: usize = 64;

/// The types of a library in strongly connected components: types that contain each other, directly
/// or not. A component comes after those it uses.
pub(crate) struct TypeComponents {
    components: Vec<Vec<TypeId>>,
    component_of: Vec<usize>,
}

impl TypeComponents {
    /// Tarjan's algorithm with an explicit stack: types may nest to any depth.
    pub(crate) fn new(library: &TypeLibrary<Declaration>) -> Self {
        let len = library.ids().count();
        let mut walk = TarjanWalk {
            library,
            index: vec![UNVISITED; len],
            lowlink: vec![0; len],
            stack: Vec::new(),
            on_stack: vec![false; len],
            next: 0,
            components: Vec::new(),
            component_of: vec![0; len],
        };
        for id in library.ids() {
            if walk.index[id.index()] == UNVISITED {
                walk.visit(id);
            }
        }
        Self { components: walk.components, component_of: walk.component_of }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[TypeId]> {
        self.components.iter().map(Vec::as_slice)
    }

    /// Whether two types are in the same component.
    pub(crate) fn same_component(&self, a: TypeId, b: TypeId) -> bool {
        self.component_of[a.index()] == self.component_of[b.index()]
    }
}

const UNVISITED: usize = usize::MAX;

struct TarjanWalk<'l> {
    library: &'l TypeLibrary<Declaration>,
    index: Vec<usize>,
    lowlink: Vec<usize>,
    stack: Vec<TypeId>,
    on_stack: Vec<bool>,
    next: usize,
    components: Vec<Vec<TypeId>>,
    component_of: Vec<usize>,
}

impl TarjanWalk<'_> {
    fn visit(&mut self, root: TypeId) {
        // A type and how many of its members have been visited.
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
            if self.index[used.index()] == UNVISITED {
                self.enter(used);
                path.push((used, 0));
            } else if self.on_stack[used.index()] {
                self.lowlink[id.index()] = self.lowlink[id.index()].min(self.index[used.index()]);
            }
        }
    }

    fn enter(&mut self, id: TypeId) {
        self.index[id.index()] = self.next;
        self.lowlink[id.index()] = self.next;
        self.next += 1;
        self.stack.push(id);
        self.on_stack[id.index()] = true;
    }

    fn leave(&mut self, id: TypeId, before: Option<TypeId>) {
        let low = self.lowlink[id.index()];
        if let Some(before) = before {
            self.lowlink[before.index()] = self.lowlink[before.index()].min(low);
        }
        if low != self.index[id.index()] {
            return;
        }
        let mut group = Vec::new();
        while let Some(member) = self.stack.pop() {
            self.on_stack[member.index()] = false;
            self.component_of[member.index()] = self.components.len();
            group.push(member);
            if member == id {
                break;
            }
        }
        self.components.push(group);
    }
}
