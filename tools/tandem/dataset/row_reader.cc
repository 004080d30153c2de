#include "tools/tandem/dataset/row_reader.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/io/byte_source.h"
#include "common/io/jsonl.h"
#include "common/io/ordered_json.h"
#include "common/status/status_macros.h"
#include "tools/tandem/dataset/arrow_rows.h"
#include "tools/tandem/dataset/compressed_source.h"

namespace tandem::dataset {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kEndings[] = {".jsonl",    ".json",    ".jsonl.gz", ".json.gz", ".jsonl.zst",
                                    ".json.zst", ".parquet", ".arrow",    ".feather"};
constexpr size_t kReadBytes = size_t{1} << 20;
// A list is parsed in one piece.
constexpr size_t kMaxListBytes = size_t{2} << 30;
// White space before a list or the first line, which decides which of them a file has.
constexpr size_t kMaxLeadingBytes = size_t{64} << 20;

absl::StatusOr<std::unique_ptr<io::ByteSource>> OpenSource(const std::string& path) {
  ASSIGN_OR_RETURN(io::FileSource file, io::FileSource::Open(path));
  auto source = std::make_unique<io::FileSource>(std::move(file));
  if (absl::EndsWith(path, ".gz")) return OpenGzip(std::move(source), path);
  if (absl::EndsWith(path, ".zst")) return OpenZstd(std::move(source), path);
  return source;
}

// Gives the bytes that were read to look at, then the rest.
class Rejoined : public io::ByteSource {
 public:
  Rejoined(std::string head, io::ByteSource& rest) : head_(std::move(head)), rest_(rest) {}

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    if (given_ == head_.size()) return rest_.Read(buffer, size);
    const size_t count = head_.copy(buffer, size, given_);
    given_ += count;
    return count;
  }

 private:
  const std::string head_;
  size_t given_ = 0;
  io::ByteSource& rest_;
};

// Appends the next bytes to `text`; false at the end.
absl::StatusOr<bool> ReadMore(io::ByteSource& source, std::string& text) {
  const size_t before = text.size();
  text.resize(before + kReadBytes);
  absl::StatusOr<size_t> count = source.Read(text.data() + before, kReadBytes);
  text.resize(before + (count.ok() ? *count : 0));
  RETURN_IF_ERROR(count.status());
  return *count > 0;
}

absl::Status VisitList(const std::string& path, absl::string_view text, const RowVisitor& fn) {
  absl::StatusOr<ordered_json> list = io::ParseOrderedJson(text);
  if (!list.ok()) return io::AtPlace(path, list.status());
  for (size_t i = 0; i < list->size(); ++i) RETURN_IF_ERROR(VisitRow(path, i + 1, (*list)[i], fn));
  return absl::OkStatus();
}

// A list begins with a bracket; anything else is one object a line.
absl::Status ForEachOfJson(io::ByteSource& source, const std::string& path, const RowVisitor& fn) {
  std::string text;
  bool more = true;
  for (size_t searched = 0;
       more && absl::StripAsciiWhitespace(absl::string_view(text).substr(searched)).empty();) {
    searched = text.size();
    if (searched > kMaxLeadingBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": expected rows within the first ", kMaxLeadingBytes,
                       " bytes, found only white space; is this the right file?"));
    }
    ASSIGN_OR_RETURN(more, ReadMore(source, text));
  }
  absl::string_view start = text;
  absl::ConsumePrefix(&start, "\xEF\xBB\xBF");
  if (!absl::StartsWith(absl::StripLeadingAsciiWhitespace(start), "[")) {
    Rejoined lines(std::move(text), source);
    return io::ForEachJsonLine(lines, path, fn);
  }
  while (more) {
    ASSIGN_OR_RETURN(more, ReadMore(source, text));
    if (text.size() > kMaxListBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": expected a list of at most ", kMaxListBytes,
                       " bytes, found a larger one; write one object a line (.jsonl)"));
    }
  }
  start = text;
  absl::ConsumePrefix(&start, "\xEF\xBB\xBF");
  return VisitList(path, start, fn);
}

}  // namespace

absl::Status VisitRow(const std::string& path, size_t number, const ordered_json& row,
                      const RowVisitor& fn) {
  const std::string place = absl::StrCat(path, ": row ", number);
  if (!row.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": expected a JSON object, found ", row.type_name()));
  }
  const std::string text = row.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  const json fields = row;
  const absl::Status status = fn(io::JsonFields(fields, place, text));
  return absl::StartsWith(status.message(), place) ? status : io::AtPlace(place, status);
}

absl::Status ForEachRow(const std::string& path, const RowVisitor& fn) {
  if (IsTable(path)) return ForEachTableRow(path, fn);
  absl::string_view name = path;
  if (!absl::ConsumeSuffix(&name, ".gz")) absl::ConsumeSuffix(&name, ".zst");
  ASSIGN_OR_RETURN(const std::unique_ptr<io::ByteSource> source, OpenSource(path));
  if (absl::EndsWith(name, ".json")) return ForEachOfJson(*source, path, fn);
  return io::ForEachJsonLine(*source, path, fn);
}

bool IsDataFile(absl::string_view path) {
  for (const char* ending : kEndings) {
    if (absl::EndsWith(path, ending)) return true;
  }
  return false;
}

std::string DataFileEndings() { return absl::StrJoin(kEndings, ", "); }

}  // namespace tandem::dataset
