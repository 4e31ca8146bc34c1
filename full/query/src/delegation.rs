//! Delegates methods of an aggregate to the function that it wraps.

/// Defines methods of an aggregate that are those of its field `function`, an `Arc<AggregateUDF>`.
macro_rules! delegate_to_function {
    ($($method:ident($($arg:ident: $kind:ty)?) -> $result:ty;)*) => {
        $(fn $method(&self, $($arg: $kind)?) -> $result {
            self.function.inner().$method($($arg)?)
        })*
    };
}
