// Reads tables with Arrow's C++ libraries, one batch of rows at a time.
#include "tools/tandem/dataset/arrow_rows.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <parquet/arrow/reader.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/io/ordered_json.h"
#include "common/status/status_macros.h"
#include "common/text/utf8.h"

namespace tandem::dataset {
namespace {

using nlohmann::ordered_json;

// Rows that are held in memory at once.
constexpr int64_t kRowsPerBatch = 1024;
// What files with a footer begin with; streams do not.
constexpr char kIpcFileMagic[] = "ARROW1";

// Returns the next batch, null at the end.
using NextBatch = std::function<arrow::Result<std::shared_ptr<arrow::RecordBatch>>()>;

absl::Status ToStatus(const std::string& path, const arrow::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": cannot read: ", status.message()));
}

ordered_json ValueAt(const arrow::Array& array, int64_t i);

ordered_json ListOf(const arrow::Array& values) {
  ordered_json list = ordered_json::array();
  for (int64_t i = 0; i < values.length(); ++i) list.push_back(ValueAt(values, i));
  return list;
}

// JSON's strings are UTF-8, but columns of bytes (images) and names hold anything: U+FFFD replaces
// each byte that is not UTF-8.
std::string Utf8(std::string bytes) {
  if (text::IsUtf8(bytes)) return bytes;
  std::string out;
  for (absl::string_view rest = bytes; !rest.empty();) {
    const size_t size = text::DecodeUtf8(rest).size;
    absl::StrAppend(&out, size == 0 ? "\xEF\xBF\xBD" : rest.substr(0, size));
    rest.remove_prefix(std::max<size_t>(size, 1));
  }
  return out;
}

// JSON's readers tell counts and ids by their being unsigned.
ordered_json Number(int64_t value) {
  return value < 0 ? ordered_json(value) : ordered_json(static_cast<uint64_t>(value));
}

template <typename ArrayType>
const ArrayType& As(const arrow::Array& array) {
  return static_cast<const ArrayType&>(array);
}

ordered_json ObjectAt(const arrow::StructArray& array, int64_t i) {
  ordered_json object = ordered_json::object();
  for (int field = 0; field < array.num_fields(); ++field) {
    object[Utf8(array.type()->field(field)->name())] = ValueAt(*array.field(field), i);
  }
  return object;
}

ordered_json MapAt(const arrow::MapArray& array, int64_t i) {
  ordered_json object = ordered_json::object();
  io::OrderedKeys keys;
  for (int64_t entry = array.value_offset(i); entry < array.value_offset(i + 1); ++entry) {
    const ordered_json key = ValueAt(*array.keys(), entry);
    keys.ValueAt(object, key.is_string() ? key.get<std::string>() : key.dump()) =
        ValueAt(*array.items(), entry);
  }
  return object;
}

// Dates, decimals and other types that JSON lacks become text.
ordered_json TextAt(const arrow::Array& array, int64_t i) {
  const auto scalar = array.GetScalar(i);
  return scalar.ok() ? ordered_json(Utf8((*scalar)->ToString())) : ordered_json();
}

ordered_json ValueAt(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return nullptr;
  switch (array.type_id()) {
    case arrow::Type::NA:
      return nullptr;
    case arrow::Type::BOOL:
      return As<arrow::BooleanArray>(array).Value(i);
    case arrow::Type::INT8:
      return Number(As<arrow::Int8Array>(array).Value(i));
    case arrow::Type::INT16:
      return Number(As<arrow::Int16Array>(array).Value(i));
    case arrow::Type::INT32:
      return Number(As<arrow::Int32Array>(array).Value(i));
    case arrow::Type::INT64:
      return Number(As<arrow::Int64Array>(array).Value(i));
    case arrow::Type::UINT8:
      return Number(As<arrow::UInt8Array>(array).Value(i));
    case arrow::Type::UINT16:
      return Number(As<arrow::UInt16Array>(array).Value(i));
    case arrow::Type::UINT32:
      return Number(As<arrow::UInt32Array>(array).Value(i));
    case arrow::Type::UINT64:
      return As<arrow::UInt64Array>(array).Value(i);
    case arrow::Type::FLOAT:
      return As<arrow::FloatArray>(array).Value(i);
    case arrow::Type::DOUBLE:
      return As<arrow::DoubleArray>(array).Value(i);
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
      return Utf8(As<arrow::BinaryArray>(array).GetString(i));
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      return Utf8(As<arrow::LargeBinaryArray>(array).GetString(i));
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY_VIEW:
      return Utf8(As<arrow::BinaryViewArray>(array).GetString(i));
    case arrow::Type::LIST:
      return ListOf(*As<arrow::ListArray>(array).value_slice(i));
    case arrow::Type::LARGE_LIST:
      return ListOf(*As<arrow::LargeListArray>(array).value_slice(i));
    case arrow::Type::FIXED_SIZE_LIST:
      return ListOf(*As<arrow::FixedSizeListArray>(array).value_slice(i));
    case arrow::Type::STRUCT:
      return ObjectAt(As<arrow::StructArray>(array), i);
    case arrow::Type::MAP:
      return MapAt(As<arrow::MapArray>(array), i);
    case arrow::Type::DICTIONARY: {
      const auto& encoded = As<arrow::DictionaryArray>(array);
      return ValueAt(*encoded.dictionary(), encoded.GetValueIndex(i));
    }
    case arrow::Type::EXTENSION:
      return ValueAt(*As<arrow::ExtensionArray>(array).storage(), i);
    default:
      return TextAt(array, i);
  }
}

arrow::Result<NextBatch> OpenParquet(const std::shared_ptr<arrow::io::RandomAccessFile>& file) {
  ARROW_ASSIGN_OR_RAISE(std::unique_ptr<parquet::arrow::FileReader> opened,
                        parquet::arrow::OpenFile(file, arrow::default_memory_pool()));
  const std::shared_ptr<parquet::arrow::FileReader> reader = std::move(opened);
  reader->set_batch_size(kRowsPerBatch);
  ARROW_ASSIGN_OR_RAISE(auto made, reader->GetRecordBatchReader());
  const std::shared_ptr<arrow::RecordBatchReader> batches = std::move(made);
  return NextBatch([reader, batches] { return batches->Next(); });
}

arrow::Result<NextBatch> OpenIpc(const std::shared_ptr<arrow::io::RandomAccessFile>& file) {
  ARROW_ASSIGN_OR_RAISE(const auto head, file->ReadAt(0, sizeof(kIpcFileMagic) - 1));
  if (head->ToString() != kIpcFileMagic) {
    ARROW_RETURN_NOT_OK(file->Seek(0));
    ARROW_ASSIGN_OR_RAISE(auto stream, arrow::ipc::RecordBatchStreamReader::Open(
                                           std::static_pointer_cast<arrow::io::InputStream>(file)));
    return NextBatch([stream] { return stream->Next(); });
  }
  ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchFileReader::Open(file));
  return NextBatch(
      [reader, next = 0]() mutable -> arrow::Result<std::shared_ptr<arrow::RecordBatch>> {
        if (next == reader->num_record_batches()) return std::shared_ptr<arrow::RecordBatch>();
        return reader->ReadRecordBatch(next++);
      });
}

absl::Status VisitBatches(const std::string& path, const NextBatch& next, const RowVisitor& fn) {
  size_t number = 0;
  while (true) {
    auto batch = next();
    if (!batch.ok()) return ToStatus(path, batch.status());
    if (*batch == nullptr) return absl::OkStatus();
    // The file may be damaged: offsets are checked before they are followed.
    if (const arrow::Status valid = (*batch)->ValidateFull(); !valid.ok()) {
      return ToStatus(path, valid);
    }
    for (int64_t i = 0; i < (*batch)->num_rows(); ++i) {
      ordered_json row = ordered_json::object();
      for (int column = 0; column < (*batch)->num_columns(); ++column) {
        row[Utf8((*batch)->column_name(column))] = ValueAt(*(*batch)->column(column), i);
      }
      RETURN_IF_ERROR(VisitRow(path, ++number, row, fn));
    }
  }
}

}  // namespace

absl::Status ForEachTableRow(const std::string& path, const RowVisitor& fn) {
  try {
    auto file = arrow::io::ReadableFile::Open(path);
    if (!file.ok()) return ToStatus(path, file.status());
    const auto next = absl::EndsWith(path, ".parquet") ? OpenParquet(*file) : OpenIpc(*file);
    if (!next.ok()) return ToStatus(path, next.status());
    return VisitBatches(path, *next, fn);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot read: ", error.what()));
  }
}

}  // namespace tandem::dataset
