// ViewServer: the rollout viewer's page over HTTP, and what it asks for (run_reader.h).
//
//   ASSIGN_OR_RETURN(auto server, ViewServer::Start("127.0.0.1:8700", *reader, *inspector));
//   std::puts(server->url().c_str());
//
//   GET api/inspect?step=N&sample=K             what the model says of a sample (inspector.h)
//   GET api/attention?step=N&sample=K&layer=L   bytes [num_heads][T][T]
#ifndef TANDEM_TOOLS_TANDEM_VIEW_VIEW_SERVER_H_
#define TANDEM_TOOLS_TANDEM_VIEW_VIEW_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/tandem/view/inspector.h"
#include "tools/tandem/view/run_reader.h"

struct mg_connection;
struct mg_context;

namespace tandem::view {

// Everything is read; nothing can be changed through it. No path of a request reaches the file
// system.
class ViewServer {
 public:
  // `listen` is HOST:PORT; port 0 takes a free one. UNAVAILABLE where it cannot be bound. Reader
  // and inspector outlive the server.
  static absl::StatusOr<std::unique_ptr<ViewServer>> Start(const std::string& listen,
                                                           RunReader& reader, Inspector& inspector);
  ~ViewServer();
  ViewServer(const ViewServer&) = delete;
  ViewServer& operator=(const ViewServer&) = delete;

  const std::string& url() const { return url_; }
  int port() const { return port_; }

 private:
  ViewServer(RunReader& reader, Inspector& inspector) : reader_(reader), inspector_(inspector) {}
  int Answer(mg_connection* connection) const;

  RunReader& reader_;
  Inspector& inspector_;
  mg_context* context_ = nullptr;
  std::string url_;
  int port_ = 0;
};

}  // namespace tandem::view

#endif  // TANDEM_TOOLS_TANDEM_VIEW_VIEW_SERVER_H_
