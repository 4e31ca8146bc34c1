//! The queries within a statement.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Query, VisitMut, VisitorMut};

/// Calls a function for each query within a statement, after those within it, with its place: 0 is
/// the outermost one.
pub(super) fn for_each_query(statement: &mut DfStatement, call: &mut dyn FnMut(usize, &mut Query)) {
    struct Queries<'c> {
        next: usize,
        /// The places of the queries around.
        around: Vec<usize>,
        call: &'c mut dyn FnMut(usize, &mut Query),
    }
    impl VisitorMut for Queries<'_> {
        type Break = ();

        fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.around.push(self.next);
            self.next += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            if let Some(place) = self.around.pop() {
                (self.call)(place, query);
            }
            ControlFlow::Continue(())
        }
    }
    match statement {
        DfStatement::Statement(statement) => {
            let visited = statement.visit(&mut Queries { next: 0, around: Vec::new(), call });
            debug_assert!(visited.is_continue());
        }
        DfStatement::Explain(explain) => for_each_query(&mut explain.statement, call),
        _ => {}
    }
}
