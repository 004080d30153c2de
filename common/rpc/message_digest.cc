#include "common/rpc/message_digest.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/hash/hasher.h"

namespace tandem::rpc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const FieldDescriptor& DigestField(const Message& message) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName("message_digest");
  if (field == nullptr || field->type() != FieldDescriptor::TYPE_STRING) std::abort();
  return *field;
}

// The digest of a message without its digest field.
std::string DigestOf(const Message& bare, absl::string_view of_request) {
  std::string bytes(of_request);
  {
    google::protobuf::io::StringOutputStream stream(&bytes);  // appends
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    if (!bare.SerializeToCodedStream(&coded)) std::abort();  // more than 2 GiB
  }
  return hash::HexDigest(bytes);
}

}  // namespace

void SetDigest(Message& message, absl::string_view of_request) {
  const FieldDescriptor& field = DigestField(message);
  message.GetReflection()->ClearField(&message, &field);
  message.GetReflection()->SetString(&message, &field, DigestOf(message, of_request));
}

absl::Status CheckDigest(const Message& message, absl::string_view of_request) {
  const FieldDescriptor& field = DigestField(message);
  const std::string stated = message.GetReflection()->GetString(message, &field);
  const std::string& name = message.GetDescriptor()->name();
  if (stated.empty()) {
    return absl::DataLossError(absl::StrCat(
        name, " arrived damaged, or the peer runs another release: it has no message_digest"));
  }
  const std::unique_ptr<Message> bare(message.New());
  bare->CopyFrom(message);
  bare->GetReflection()->ClearField(bare.get(), &field);
  const std::string found = DigestOf(*bare, of_request);
  if (found == stated) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(name,
                   of_request.empty() ? " arrived damaged: its"
                                      : " arrived damaged, or belongs to another call: its",
                   " message_digest is ", stated, ", but what arrived has ", found));
}

absl::Status ExplainGarbled(absl::Status status) {
  // gRPC's own messages for a response that does not parse; a callback's is empty.
  const bool garbled =
      (absl::IsUnimplemented(status) || absl::IsInternal(status)) &&
      (status.message().empty() || status.message() == "No message returned for unary request");
  if (!garbled) return status;
  return absl::DataLossError("the request or its response arrived damaged: it cannot be parsed");
}

}  // namespace tandem::rpc
