#include "tools/tandem/driver/image_store.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/http/worker_pool.h"
#include "common/images/decode.h"
#include "common/images/fetch/fetch_together.h"
#include "common/images/image_digest.h"
#include "common/io/atomic_file.h"
#include "common/io/file_util.h"
#include "common/io/json_text.h"
#include "common/io/parse_json.h"
#include "common/io/read_file.h"
#include "common/status/exceptions.h"
#include "common/status/status_macros.h"

namespace tandem::driver {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kMaxRecordBytes = 64 << 10;

absl::Status CreateFolder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(folder, ": cannot create it: ", error.message()));
}

std::string HexDigest(absl::string_view bytes) {
  return absl::BytesToHexString(images::ImageDigest(bytes));
}

// The image that a record of the URL names; nullopt without one, or if its file is gone or damaged.
std::optional<PromptImage> FindRecord(const std::string& path, const std::string& folder,
                                      const std::string& url) {
  const absl::StatusOr<std::string> text = io::ReadFile(path, kMaxRecordBytes);
  if (!text.ok()) return std::nullopt;
  const json record = io::ParseJson<json>(*text).value_or(nullptr);
  if (!record.is_object() || record.value("url", json()) != url) return std::nullopt;
  const json hex = record.value("sha256", json());
  if (!hex.is_string()) return std::nullopt;
  PromptImage image = {absl::StrCat(folder, "/", hex.get<std::string>()),
                       absl::HexStringToBytes(hex.get<std::string>())};
  if (!ReadImageFile(image).ok()) return std::nullopt;
  return image;
}

}  // namespace

ImageStore::ImageStore(std::string folder) {
  std::error_code error;
  const fs::path absolute = fs::absolute(folder, error);
  folder_ = error ? std::move(folder) : absolute.lexically_normal().string();
}

absl::StatusOr<PromptImage> ImageStore::Keep(absl::string_view file) const {
  PromptImage image = {"", images::ImageDigest(file)};
  image.source = absl::StrCat(folder_, "/", absl::BytesToHexString(image.digest));
  if (ReadImageFile(image).ok()) return image;
  RETURN_IF_ERROR(CreateFolder(folder_));
  RETURN_IF_ERROR(io::WriteFileAtomically(image.source, file));
  return image;
}

absl::StatusOr<PromptImage> UrlImages::Get(const std::string& url) const {
  const std::string records = store_.folder() + "/urls";
  const std::string path = absl::StrCat(records, "/", HexDigest(url), ".json");
  if (std::optional<PromptImage> known = FindRecord(path, store_.folder(), url)) return *known;
  {
    absl::MutexLock lock(&mu_);
    if (const auto failure = failures_.extract(url)) return failure.mapped();
  }
  return Fetch(url, path);
}

absl::StatusOr<PromptImage> UrlImages::Fetch(const std::string& url,
                                             const std::string& record) const {
  ASSIGN_OR_RETURN(const std::string file, fetcher_.Fetch(url, interrupted_));
  // Before it is kept: another try may get a picture.
  RETURN_IF_ERROR(
      images::DecodeImage(file, url.substr(0, url.find('?')), images::ImageLimits()).status());
  ASSIGN_OR_RETURN(PromptImage image, store_.Keep(file));
  RETURN_IF_ERROR(CreateFolder(io::ParentFolder(record)));
  RETURN_IF_ERROR(io::WriteFileAtomically(
      record, io::JsonText(json{{"url", url}, {"sha256", absl::BytesToHexString(image.digest)}})));
  return image;
}

bool UrlImages::Prefetch(absl::Span<const std::string> urls) const {
  std::vector<std::string> distinct(urls.begin(), urls.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  http::WorkerPool pool(static_cast<int>(images::kMostFetches) - 1);
  return images::FetchTogether(distinct.size(), pool, [&](size_t i) {
    const absl::Status status = Catch([&] { return Get(distinct[i]).status(); });
    if (status.ok()) return true;
    absl::MutexLock lock(&mu_);
    failures_[distinct[i]] = status;
    return false;
  });
}

}  // namespace tandem::driver
