// A folder of files that appears whole or not at all: it is filled under a temporary name beside
// the target and renamed at the end.
//
//   ASSIGN_OR_RETURN(io::AtomicFolder folder, io::AtomicFolder::Create(run_dir + "/model"));
//   RETURN_IF_ERROR(io::WriteFileAtomically(folder.temporary_path() + "/config.json", text));
//   RETURN_IF_ERROR(folder.Commit(io::AtomicFolder::kReplace));
#ifndef TANDEM_COMMON_IO_ATOMIC_FOLDER_H_
#define TANDEM_COMMON_IO_ATOMIC_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::io {

// Owned and used by one thread at a time. Destroyed before Commit(), it removes what was written.
class AtomicFolder {
 public:
  // What Commit() does where the target exists and is not empty.
  enum IfPresent {
    kRefuse,   // ALREADY_EXISTS
    kReplace,  // the old folder is exchanged for the new one in one step, then removed
  };

  // Folders above the target are made where they are missing.
  static absl::StatusOr<AtomicFolder> Create(const std::string& path);

  AtomicFolder(AtomicFolder&& other) noexcept;
  AtomicFolder& operator=(AtomicFolder&&) = delete;
  ~AtomicFolder();

  // Where to write until Commit(). Files are expected to be synced by whoever writes them.
  const std::string& temporary_path() const { return temporary_path_; }
  const std::string& path() const { return path_; }

  // After success the target is the folder, durably. After failure the target is as before.
  absl::Status Commit(IfPresent if_present = kRefuse);

 private:
  AtomicFolder(std::string path, std::string temporary_path);

  std::string path_;
  std::string temporary_path_;  // empty once committed
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_ATOMIC_FOLDER_H_
