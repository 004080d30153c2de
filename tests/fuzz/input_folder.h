// A folder in memory for parsers that read files.
#ifndef TANDEM_TESTS_FUZZ_INPUT_FOLDER_H_
#define TANDEM_TESTS_FUZZ_INPUT_FOLDER_H_

#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace tandem::fuzz {

// Made once for a process, removed at its end.
class InputFolder {
 public:
  InputFolder() {
    std::string pattern = "/dev/shm/tandem-fuzz-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~InputFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

  // Returns the file's path.
  std::string Write(const std::string& name, const uint8_t* data, size_t size) {
    const std::string path = path_ + "/" + name;
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr || std::fwrite(data, 1, size, file) != size) std::abort();
    std::fclose(file);
    return path;
  }

 private:
  std::string path_;
};

}  // namespace tandem::fuzz

#endif  // TANDEM_TESTS_FUZZ_INPUT_FOLDER_H_
