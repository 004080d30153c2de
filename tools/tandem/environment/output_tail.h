// OutputTail: the end of what a child process writes into a pipe, however much that is.
//
//   ASSIGN_OR_RETURN(OutputTail tail, OutputTail::Open(65536));
//   options.stderr_fd = tail.write_end();
//   ASSIGN_OR_RETURN(const auto process, rpc::ChildProcess::Start(options));
//   tail.CloseWriteEnd();
//   while (tail.Read()) process->Wait(absl::Milliseconds(50));
#ifndef TANDEM_TOOLS_TANDEM_ENVIRONMENT_OUTPUT_TAIL_H_
#define TANDEM_TOOLS_TANDEM_ENVIRONMENT_OUTPUT_TAIL_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/host/file_descriptor.h"

namespace tandem::environment {

// Used by one thread.
class OutputTail {
 public:
  static absl::StatusOr<OutputTail> Open(size_t max_bytes);

  int read_end() const { return read_end_.get(); }
  int write_end() const { return write_end_.get(); }
  void CloseWriteEnd() { write_end_ = host::FileDescriptor(); }

  // Reads what is there, without waiting for more. Returns false once every writer has closed the pipe.
  bool Read();
  // The last bytes.
  const std::string& text() const { return text_; }

 private:
  OutputTail(int read_end, int write_end, size_t max_bytes)
      : read_end_(read_end), write_end_(write_end), max_bytes_(max_bytes) {}

  host::FileDescriptor read_end_;
  host::FileDescriptor write_end_;
  size_t max_bytes_;
  std::string text_;
};

}  // namespace tandem::environment

#endif  // TANDEM_TOOLS_TANDEM_ENVIRONMENT_OUTPUT_TAIL_H_
