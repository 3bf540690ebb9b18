// InferencePool, for which no package has types: written by hand from the API reference of the Gateway API Inference
// Extension, https://gateway-api-inference-extension.sigs.k8s.io/reference/spec (version v1).
import type { IObjectMeta } from "@kubernetes-models/apimachinery/apis/meta/v1/ObjectMeta";

interface Port {
  number: number;
}

export interface IInferencePool {
  apiVersion: "inference.networking.k8s.io/v1";
  kind: "InferencePool";
  metadata: IObjectMeta;
  spec: {
    selector: { matchLabels: { [label: string]: string } };
    targetPorts: Port[];
    appProtocol?: "http" | "kubernetes.io/h2c";
    endpointPickerRef: {
      group?: string;
      kind?: string;
      name: string;
      port?: Port;
      failureMode?: "FailOpen" | "FailClose";
    };
  };
}
