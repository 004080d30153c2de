#include "common/io/safetensors_header.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/io/parse_json.h"
#include "common/status/status_macros.h"

namespace tandem::io {
namespace {

using nlohmann::json;

constexpr char kMetadataKey[] = "__metadata__";

std::string Quoted(absl::string_view name) {
  constexpr size_t kLongest = 200;
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(name.substr(0, kLongest)),
                      name.size() > kLongest ? "...\"" : "\"");
}

// Builds the header while parsing, without an intermediate tree of JSON values: a header may be 100
// MB, and only one shape of JSON is allowed. Returning false stops the parser; `problem` holds the
// reason.
class HeaderHandler : public nlohmann::json_sax<json> {
 public:
  SafetensorsHeader header;
  std::string problem;

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("true or false"); }
  bool number_integer(number_integer_t value) override {
    return Unexpected(absl::StrCat("the negative number ", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Unexpected(absl::StrCat("the number ", text.substr(0, 40)));
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (!in_list_) return Unexpected(absl::StrCat("the number ", value));
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Fail(absl::StrCat(field_, ": expected numbers below 2^63, found ", value));
    }
    const size_t longest = field_ == "shape" ? kMaxTensorDimensions : 2;
    if (list_.size() == longest) {
      return Fail(absl::StrCat(field_, ": expected at most ", longest, " numbers, found more"));
    }
    list_.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (in_metadata_) {
      header.metadata[field_] = std::move(value);
      return true;
    }
    if (depth_ != 2 || field_ != "dtype" || in_list_) return Unexpected("a string");
    absl::StatusOr<DType> dtype = ParseDType(value);
    if (!dtype.ok()) return Fail(std::string(dtype.status().message()));
    tensor_.dtype = *dtype;
    has_dtype_ = true;
    return true;
  }

  bool start_object(std::size_t) override {
    if (in_list_ || depth_ >= 2 || (depth_ == 1 && tensor_.name.empty() && !in_metadata_)) {
      return Unexpected("an object");
    }
    ++depth_;
    return true;
  }

  bool key(string_t& value) override {
    if (depth_ == 2) {
      field_ = std::move(value);
      if (in_metadata_ || field_ == "dtype" || field_ == "shape" || field_ == "data_offsets") {
        return true;
      }
      return Fail(
          absl::StrCat("expected dtype, shape and data_offsets, found the field ", Quoted(field_)));
    }
    in_metadata_ = value == kMetadataKey;
    tensor_ = TensorInfo();
    has_dtype_ = has_shape_ = has_offsets_ = false;
    if (value.empty()) return Fail("expected a name for each tensor, found an empty one");
    if (!names_.insert(value).second) return Fail(absl::StrCat("named twice: ", Quoted(value)));
    if (!in_metadata_) tensor_.name = std::move(value);
    return true;
  }

  bool end_object() override {
    if (depth_ == 2 && !in_metadata_) {
      if (!has_dtype_) return Fail("expected a dtype, found none");
      if (!has_shape_) return Fail("expected a shape, found none");
      if (!has_offsets_) return Fail("expected data_offsets, found none");
      header.tensors.push_back(std::move(tensor_));
      tensor_ = TensorInfo();
    }
    in_metadata_ = false;
    --depth_;
    return true;
  }

  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || in_list_ || field_ == "dtype") {
      return Unexpected("an array");
    }
    in_list_ = true;
    list_.clear();
    return true;
  }

  bool end_array() override {
    in_list_ = false;
    if (field_ == "shape") {
      has_shape_ = true;
      tensor_.shape = list_;
      return true;
    }
    if (list_.size() != 2) {
      return Fail(
          absl::StrCat("data_offsets: expected [begin, end], found ", list_.size(), " numbers"));
    }
    has_offsets_ = true;
    tensor_.begin = list_[0];
    tensor_.end = list_[1];
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    return Fail(absl::StrCat("expected JSON: ", error.what()));
  }

 private:
  bool Unexpected(absl::string_view found) {
    if (depth_ == 0) return Fail(absl::StrCat("expected an object of tensors, found ", found));
    if (depth_ == 1) return Fail(absl::StrCat("expected an object for each tensor, found ", found));
    if (in_metadata_) {
      return Fail(
          absl::StrCat(kMetadataKey, ": ", Quoted(field_), ": expected a string, found ", found));
    }
    return Fail(
        absl::StrCat(field_, ": expected ",
                     field_ == "dtype" ? "a string" : "an array of integers that are not negative",
                     ", found ", found));
  }

  bool Fail(const std::string& message) {
    problem = tensor_.name.empty() ? message
                                   : absl::StrCat("tensor ", Quoted(tensor_.name), ": ", message);
    return false;
  }

  int depth_ = 0;  // 1 in the outer object, 2 in a tensor's or the metadata's
  bool in_metadata_ = false;
  bool in_list_ = false;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  std::string field_;
  std::vector<int64_t> list_;
  TensorInfo tensor_;  // the one being read
  absl::flat_hash_set<std::string> names_;
};

absl::Status Bad(const TensorInfo& tensor, const std::string& message) {
  return absl::DataLossError(absl::StrCat("tensor ", Quoted(tensor.name), ": ", message));
}

absl::Status CheckRanges(const std::vector<TensorInfo>& tensors, int64_t data_bytes) {
  int64_t covered = 0;
  const TensorInfo* previous = nullptr;
  for (const TensorInfo& tensor : tensors) {
    const std::string range = absl::StrCat("[", tensor.begin, ", ", tensor.end, ")");
    if (tensor.end < tensor.begin) {
      return Bad(tensor, absl::StrCat("data_offsets ", range, " ends before it begins"));
    }
    absl::StatusOr<int64_t> expected = TensorBytes(tensor.dtype, tensor.shape);
    if (!expected.ok()) return Bad(tensor, std::string(expected.status().message()));
    if (tensor.end - tensor.begin != *expected) {
      return Bad(tensor,
                 absl::StrCat("expected ", *expected, " bytes for ", Name(tensor.dtype),
                              " of shape [", absl::StrJoin(tensor.shape, ", "),
                              "], found data_offsets ", range, " of ", tensor.end - tensor.begin));
    }
    if (tensor.end > data_bytes) {
      return Bad(tensor, absl::StrCat("data_offsets ", range, " is outside the file's ", data_bytes,
                                      " bytes of data; the file is truncated or its header is "
                                      "wrong: copy or download it again"));
    }
    if (tensor.begin < covered) {
      return Bad(tensor, absl::StrCat("data_offsets ", range, " overlaps that of tensor ",
                                      Quoted(previous->name), ", which end at ", covered));
    }
    if (tensor.begin > covered) {
      return Bad(tensor,
                 absl::StrCat("data_offsets ", range, " leaves a gap after byte ", covered));
    }
    covered = tensor.end;
    previous = &tensor;
  }
  if (covered != data_bytes) {
    return absl::DataLossError(absl::StrCat(
        "expected ", covered, " bytes of data, as stated in the header, found ", data_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> TensorBytes(DType dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = SizeOf(dtype);
  bool overflow = false;
  for (const int64_t size : shape) {
    if (size < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape: expected sizes of at least 0, found ", size));
    }
    overflow |= __builtin_mul_overflow(bytes, size, &bytes);
  }
  if (overflow) {
    return absl::InvalidArgumentError(absl::StrCat("shape [", absl::StrJoin(shape, ", "),
                                                   "] has more bytes than 63 bits can count"));
  }
  return bytes;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view text,
                                                         int64_t data_bytes) {
  HeaderHandler handler;
  try {
    if (!json::sax_parse(text.begin(), text.end(), &handler)) {
      return absl::DataLossError(absl::StrCat("header: ", handler.problem));
    }
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat("header: ", JsonProblem(error)));
  }
  SafetensorsHeader header = std::move(handler.header);
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  RETURN_IF_ERROR(CheckRanges(header.tensors, data_bytes));
  return header;
}

}  // namespace tandem::io
