//! The functions of queries. Of those for payloads, `octet_length` also takes binary values; others
//! must not read them as text: see [`check_binary_arguments`].

use std::sync::Arc;

use arrow_schema::{DataType, Field};
use datafusion::arrow::compute::kernels::length::length;
use datafusion::common::DFSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

use crate::extremes::{max, min};
use crate::sums::sum;

/// DataFusion's functions of one row, and ours.
pub(crate) fn scalar_functions() -> Vec<Arc<ScalarUDF>> {
    let mut all = SessionStateDefaults::default_scalar_functions();
    all.push(octet_length());
    #[cfg(test)]
    all.push(crate::testing::panic_on());
    all
}

/// DataFusion's aggregates, and ours.
pub(crate) fn aggregate_functions() -> Vec<Arc<AggregateUDF>> {
    let mut all = SessionStateDefaults::default_aggregate_functions();
    all.extend(own_aggregates());
    all
}

/// The aggregates that replace DataFusion's.
pub(crate) fn own_aggregates() -> [Arc<AggregateUDF>; 3] {
    [min(), max(), sum()]
}

/// `octet_length` for texts and binary values; it replaces DataFusion's.
pub(crate) fn octet_length() -> Arc<ScalarUDF> {
    let of_texts = datafusion::functions::string::octet_length();
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(OctetLength { of_texts, signature }.into())
}

/// Refuses functions that DataFusion would give a binary argument as text: a length would be that
/// of its characters, and most payloads are no text.
pub(crate) fn check_binary_arguments(call: &ScalarFunction, schema: &DFSchema) -> Result<()> {
    let given = call.args.iter().map(|arg| Ok(arg.to_field(schema)?.1));
    let given: Vec<_> = given.collect::<Result<_>>()?;
    // The planner reports what the function does not take.
    let Ok(taken) = fields_with_udf(&given, &*call.func) else { return Ok(()) };
    for ((arg, given), taken) in call.args.iter().zip(&given).zip(&taken) {
        if given.data_type().is_binary() && taken.data_type().is_string() {
            let name = call.name();
            return Err(DataFusionError::Plan(format!(
                "`{name}` is for texts, and {arg} is binary: its bytes are counted by \
                 `octet_length`, and shown by `encode({arg}, 'hex')`; text in it is read by \
                 `{arg}::text`"
            )));
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OctetLength {
    of_texts: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for OctetLength {
    fn name(&self) -> &str {
        self.of_texts.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        if let [kind] = arg_types
            && kind.is_binary()
        {
            return Ok(vec![kind.clone()]);
        }
        let field = |kind: &DataType| Arc::new(Field::new("", kind.clone(), true));
        let given: Vec<_> = arg_types.iter().map(field).collect();
        let taken = fields_with_udf(&given, &*self.of_texts)?;
        Ok(taken.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [DataType::LargeBinary] => Ok(DataType::Int64),
            [kind] if kind.is_binary() => Ok(DataType::Int32),
            _ => self.of_texts.return_type(arg_types),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.first() {
            Some(value) if value.data_type().is_binary() => {
                let values = value.to_array(args.number_rows)?;
                Ok(ColumnarValue::Array(length(&values)?))
            }
            _ => self.of_texts.invoke_with_args(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::session::SessionOptions;
    use crate::testing::printed_rows;

    fn answer(what: &str) -> Result<String, String> {
        let sql = format!(
            "with t as (select arrow_cast('éé', 'Binary') as b, 'éé' as s, X'ff' as f) \
             select {what} as x from t"
        );
        Ok(printed_rows(&sql, SessionOptions::default())?.concat().concat())
    }

    #[test]
    fn the_bytes_of_texts_and_binary_values_are_counted() {
        for (what, expected) in [
            ("octet_length(b)", "4"),
            ("octet_length(s)", "4"),
            ("octet_length(f)", "1"),
            ("octet_length(arrow_cast(b, 'BinaryView'))", "4"),
            ("octet_length(arrow_cast(b, 'LargeBinary'))", "4"),
            ("octet_length(arrow_cast(b, 'FixedSizeBinary(4)'))", "4"),
            ("octet_length(nullif(b, b))", ""),
            ("length(s)", "2"),
            ("length(b::text)", "2"),
            ("encode(f, 'hex')", "ff"),
            ("md5(f) is not null", "true"),
            ("coalesce(f, b) = X'ff'", "true"),
        ] {
            assert_eq!(answer(what).as_deref(), Ok(expected), "{what}");
        }
    }

    #[test]
    fn binary_values_are_not_read_as_text_unasked() {
        for call in ["length(b)", "char_length(b)", "length(nullif(b, b))"] {
            let message = answer(call).unwrap_err();
            assert!(message.contains("is for texts, and "), "{call}: {message}");
        }
    }
}
