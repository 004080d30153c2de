// Writes a folder of files atomically: it is filled under a temporary name beside the target and
// renamed at the end.
//
//   ASSIGN_OR_RETURN(io::AtomicFolder folder, io::AtomicFolder::Create(run_dir + "/model"));
//   RETURN_IF_ERROR(io::WriteFileAtomically(folder.temporary_path() + "/config.json", text));
//   RETURN_IF_ERROR(folder.Commit());
//
// Only a folder of the same kind may replace a folder with files: a new model replaces a model,
// never a folder of rollouts.
//
//   ASSIGN_OR_RETURN(io::AtomicFolder folder,
//                    io::AtomicFolder::Create(run_dir + "/model", &io::kModelFolder));
#ifndef TANDEM_COMMON_IO_ATOMIC_FOLDER_H_
#define TANDEM_COMMON_IO_ATOMIC_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::io {

// A kind of folder that programs write as a whole.
struct FolderKind {
  const char* name;  // "a model folder", for errors
  // Whether a folder is of this kind, judged by the files that all of them have.
  bool (*is_one)(const std::string& folder);
};

// A Hugging Face folder: config.json and safetensors.
extern const FolderKind kModelFolder;

// Checks whether a new folder may replace what is at `path`: always if there is nothing or an empty
// folder; a folder with files only if it is of the kind `replaces`. ALREADY_EXISTS if there are
// files and `replaces` is null; FAILED_PRECONDITION if they are of another kind, or `path` is no
// folder. Changes nothing.
absl::Status CheckReplaceable(const std::string& path, const FolderKind* replaces);

// Owned and used by one thread at a time. If destroyed before Commit(), it removes its files.
class AtomicFolder {
 public:
  // Creates missing parent folders. `replaces`, which outlives the object, is the kind of folder
  // that may already be there. Returns CheckReplaceable()'s errors before anything is written.
  static absl::StatusOr<AtomicFolder> Create(const std::string& path,
                                             const FolderKind* replaces = nullptr);

  AtomicFolder(AtomicFolder&& other) noexcept;
  AtomicFolder& operator=(AtomicFolder&&) = delete;
  ~AtomicFolder();

  // The folder to write to until Commit(). Callers sync the files that they write.
  const std::string& temporary_path() const { return temporary_path_; }
  const std::string& path() const { return path_; }

  // After success the target is durably the new folder. An old one was exchanged for it in one step
  // (moved aside first if the file system cannot exchange) and is removed. After failure,
  // CheckReplaceable()'s included, the target is unchanged, unless only the last sync failed or the
  // error says where the old folder is now.
  absl::Status Commit();

 private:
  AtomicFolder(std::string path, std::string temporary_path, const FolderKind* replaces);

  std::string path_;
  std::string temporary_path_;  // empty once committed
  const FolderKind* replaces_;
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_ATOMIC_FOLDER_H_
