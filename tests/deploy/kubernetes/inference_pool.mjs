// What the reference says of InferencePool's values beyond their types, in the form of the packages' own models.
const LABEL_VALUE = /^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$/;
const isPort = (port) => Number.isInteger(port?.number) && port.number >= 1 && port.number <= 65535;

export class InferencePool {
  constructor(manifest) {
    this.spec = manifest.spec;
  }

  validate() {
    const { selector, targetPorts, endpointPickerRef: picker } = this.spec;
    const labels = Object.values(selector.matchLabels);
    const numbers = targetPorts.map((port) => port.number);
    const rules = [
      [labels.length >= 1 && labels.length <= 64, "selector.matchLabels: 1 to 64 labels"],
      [labels.every((value) => LABEL_VALUE.test(value) && value.length <= 63), "selector.matchLabels: no label's value"],
      [numbers.length >= 1 && numbers.length <= 8, "targetPorts: 1 to 8 ports"],
      [new Set(numbers).size === numbers.length, "targetPorts: each port once"],
      [targetPorts.every(isPort), "targetPorts: 1 to 65535"],
      [picker.name.length >= 1 && picker.name.length <= 253, "endpointPickerRef.name: 1 to 253 characters"],
      [picker.port === undefined || isPort(picker.port), "endpointPickerRef.port: 1 to 65535"],
      [(picker.kind ?? "Service") !== "Service" || picker.port !== undefined, "endpointPickerRef.port: a Service needs one"],
    ];
    const broken = rules.filter(([holds]) => !holds).map(([, rule]) => rule);
    if (broken.length > 0) throw new Error(broken.join(", "));
  }
}
