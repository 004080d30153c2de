// A folder of files that appears whole or not at all: it is filled under a temporary name beside
// the target and renamed at the end.
//
//   ASSIGN_OR_RETURN(io::AtomicFolder folder, io::AtomicFolder::Create(run_dir + "/model"));
//   RETURN_IF_ERROR(io::WriteFileAtomically(folder.temporary_path() + "/config.json", text));
//   RETURN_IF_ERROR(folder.Commit());
//
// A folder with files is replaced only by one of its kind: a new model takes the place of a model,
// never of a folder of rollouts.
//
//   io::AtomicFolder::Create(run_dir + "/model", &io::kModelFolder);
#ifndef TANDEM_COMMON_IO_ATOMIC_FOLDER_H_
#define TANDEM_COMMON_IO_ATOMIC_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::io {

// A kind of folder that programs write whole.
struct FolderKind {
  const char* name;  // "a model folder", for errors
  // Whether a folder is one, by the files that every one of them has.
  bool (*is_one)(const std::string& folder);
};

// A Hugging Face folder: config.json and safetensors.
extern const FolderKind kModelFolder;

// Whether a new folder may take the place of what is at `path`: of nothing and of an empty folder
// always, of a folder with files where it is of the kind `replaces`. ALREADY_EXISTS where there are
// files and `replaces` is null; FAILED_PRECONDITION where they are of something else, or `path` is
// no folder. Changes nothing.
absl::Status CheckReplaceable(const std::string& path, const FolderKind* replaces);

// Owned and used by one thread at a time. Destroyed before Commit(), it removes what was written.
class AtomicFolder {
 public:
  // Folders above the target are made where they are missing. `replaces`, which outlives the
  // object: the kind of folder that may be there already. Errors of CheckReplaceable(), so that
  // nothing is written in vain.
  static absl::StatusOr<AtomicFolder> Create(const std::string& path,
                                             const FolderKind* replaces = nullptr);

  AtomicFolder(AtomicFolder&& other) noexcept;
  AtomicFolder& operator=(AtomicFolder&&) = delete;
  ~AtomicFolder();

  // Where to write until Commit(). Files are expected to be synced by whoever writes them.
  const std::string& temporary_path() const { return temporary_path_; }
  const std::string& path() const { return path_; }

  // After success the target is the folder, durably; an old one was exchanged for it in one step
  // and is removed. After failure, CheckReplaceable()'s included, the target is as before.
  absl::Status Commit();

 private:
  AtomicFolder(std::string path, std::string temporary_path, const FolderKind* replaces);

  std::string path_;
  std::string temporary_path_;  // empty once committed
  const FolderKind* replaces_;
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_ATOMIC_FOLDER_H_
